/* Calls a function of the library without Python and without libtvm_ffi, from C or from C++20: cc tests/hello.c -ldl && ./a.out libhello_functions.so */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

typedef struct { int32_t type, id; } DLDevice;
typedef struct { uint8_t code, bits; uint16_t lanes; } DLDataType;
typedef struct { void *data; DLDevice device; int32_t ndim; DLDataType dtype; int64_t *shape, *strides; uint64_t byte_offset; } DLTensor;
typedef struct { int32_t type_index; uint32_t small_str_len; union { int64_t number; double real; void *pointer; } value; } TVMFFIAny;
typedef int (*Function)(void *, const TVMFFIAny *, int32_t, TVMFFIAny *);
typedef const char *(*LastError)(const char **);

enum { FLOAT = 3, TENSOR = 7, CPU = 1, FLOATS = 2 };

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) return fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "name the library"), 1;
    Function scale = (Function)dlsym(library, "__tvm_ffi_scale_");
    LastError last_error = (LastError)dlsym(library, "interop_tvm_ffi_last_error");

    float numbers[] = {1, 2, 3, 4};
    int64_t shape[] = {2, 2}, strides[] = {1, 2};
    DLTensor tensor = {numbers, {CPU, 0}, 2, {FLOATS, 32, 1}, shape, strides, 0};
    TVMFFIAny arguments[] = {{TENSOR, 0, {.pointer = &tensor}}, {FLOAT, 0, {.real = 2.5}}}, result;
    if (scale(NULL, arguments, 2, &result)) return fprintf(stderr, "%s\n", last_error(NULL)), 1;
    printf("%g %g %g %g\n", numbers[0], numbers[1], numbers[2], numbers[3]);

    const char *kind;
    if (scale(NULL, arguments, 1, &result)) {
        const char *text = last_error(&kind);
        printf("%s: %s\n", kind, text);
    }
    return 0;
}
