/* The structs of DLPack 1.3 under short names. */

#include <stdint.h>

typedef struct { uint32_t major, minor; } Version;
typedef struct {
    void *data;
    struct { int32_t type, id; } device;
    int32_t ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;
typedef struct Managed {
    Version version;
    void *context;
    void (*deleter)(struct Managed *);
    uint64_t flags;
    Tensor tensor;
} Managed;
typedef struct Table {
    struct { Version version; struct Table *previous; } header;
    int (*allocate)(Tensor *, Managed **, void *, void (*)(void *, const char *, const char *));
    int (*from_object)(void *, Managed **);
    int (*to_object)(Managed *, void **);
    int (*borrow)(void *, Tensor *);
    int (*stream)(int, int32_t, void **);
} Table;
