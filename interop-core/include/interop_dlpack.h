/*
 * Managed tensors between C and the Rust crate interop-core: what each side promises the other.
 *
 * Needs C99 or C++11, and only <stdint.h>. The structs are those of DLPack 1.3: struct DLManagedTensorVersioned (major
 * version 1), and the older struct DLManagedTensor, without version and flags. If you use dlpack.h, include it first;
 * its structs are used then.
 *
 * A pointer that Rust hands out (ManagedTensor::into_raw)
 *
 *   1. The owner of the pointer owns the struct, its shape and strides, and the memory. The struct and its numbers stay
 *      as they are, and the memory stays valid, until `deleter(tensor)` is called and not any longer.
 *   2. The deleter is never null. Call it once, with this pointer and not with a pointer to a copy. If it is not
 *      called, the memory leaks, and nothing worse happens.
 *   3. The deleter may be called on any thread: without Python's lock, with any or no CUDA context current, and while
 *      other threads use other tensors of the same memory. It does not unwind. It waits for no kernel, unless the call
 *      that frees the memory does (cuMemFree). CUDA memory is released after all work that was queued in its context
 *      until then.
 *   4. Do not write to the struct. You may write to the memory unless DLPACK_FLAG_BITMASK_READ_ONLY is set. The older
 *      struct has no flags, so read-only arrays are never exported with it.
 *   5. `strides` is set, in elements and with signs, and `byte_offset` is 0. Without axes, `shape` and `strides` are
 *      null. Without elements, `data` is null.
 *   6. Host memory may be used at once. CUDA memory may be used in stream order on the stream that the export was made
 *      for (into_dlpack_as, share_dlpack_as), or on the legacy default stream if none was named.
 *
 * A pointer that Rust takes over (ManagedTensor::from_raw)
 *
 *   1. Nobody else may release the struct. The struct and the numbers behind `shape` and `strides` stay as they are, and
 *      the memory stays valid, until Rust calls the deleter.
 *   2. Rust calls the deleter once, whether the tensor was used, refused or only dropped. The call may come from any
 *      thread, with or without Python's lock. For CUDA memory it comes after all work that was queued in its context. A
 *      null deleter means that there is nothing to do.
 *   3. The deleter also frees the struct, if the struct has to be freed. It does not throw, and does not jump out.
 *   4. If the struct has another major version, Rust reads only the version and the deleter.
 *   5. `strides` may be null for a compact array in C order. `shape` may be null without axes. `byte_offset` is added
 *      to `data`.
 *   6. Rust does not write to the struct and does not read `manager_ctx`. It writes to the memory only if the flags
 *      allow it. The older struct counts as read-only.
 *   7. If work is pending on CUDA memory, the code that hands over the pointer has made the import's stream wait for it
 *      (Import::with_stream). An import without a named stream uses the legacy default stream.
 */
#ifndef INTEROP_DLPACK_H
#define INTEROP_DLPACK_H

#include <stdint.h>

/* The include guard of dlpack.h. */
#ifndef DLPACK_DLPACK_H_

#define DLPACK_MAJOR_VERSION 1
#define DLPACK_FLAG_BITMASK_READ_ONLY (UINT64_C(1) << 0)
#define DLPACK_FLAG_BITMASK_IS_COPIED (UINT64_C(1) << 1)
#define DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED (UINT64_C(1) << 2)

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint32_t major;
    uint32_t minor;
} DLPackVersion;

/* kDLCPU 1, kDLCUDA 2, kDLCUDAHost 3 (pinned), kDLCUDAManaged 13. */
typedef struct {
    int32_t device_type;
    int32_t device_id;
} DLDevice;

/* kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4, kDLComplex 5, kDLBool 6, with 1 lane. dlpack.h has the others. */
typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

/* The functions by which C code exchanges tensors with a Python class: the capsule `dlpack_exchange_api` in its attribute
 * `__dlpack_c_exchange_api__`. They return 0, or -1 with a Python exception, and any of them may be null. */
typedef struct DLPackExchangeAPIHeader {
    DLPackVersion version;
    struct DLPackExchangeAPIHeader *prev_api;
} DLPackExchangeAPIHeader;

typedef struct DLPackExchangeAPI {
    DLPackExchangeAPIHeader header;
    int (*managed_tensor_allocator)(DLTensor *prototype, DLManagedTensorVersioned **out, void *error_ctx,
                                    void (*set_error)(void *error_ctx, const char *kind, const char *message));
    int (*managed_tensor_from_py_object_no_sync)(void *py_object, DLManagedTensorVersioned **out);
    int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned *tensor, void **out_py_object);
    int (*dltensor_from_py_object_no_sync)(void *py_object, DLTensor *out);
    int (*current_work_stream)(int32_t device_type, int32_t device_id, void **out_current_stream);
} DLPackExchangeAPI;

#ifdef __cplusplus
}
#endif

#endif
#endif
