/*
 * Managed tensors between C and the Rust crate interop-core: what each side promises the other.
 *
 * C99 or C++11; needs <stdint.h> alone. The structs are those of DLPack 1.3 (struct DLManagedTensorVersioned: major
 * version 1; struct DLManagedTensor: the older form, without version and flags). Whoever uses dlpack.h includes it first:
 * its structs are taken then.
 *
 * A pointer that Rust hands out (ManagedTensor::into_raw)
 *
 *   1. The struct, its shape and strides, and the memory belong to whoever has the pointer. They stay as they are until
 *      `deleter(tensor)` is called, and not a moment longer.
 *   2. The deleter is never null. It is called once, with the pointer itself and not with that of a copy. Not to call
 *      it is a leak, and nothing worse.
 *   3. It may be called on any thread: without Python's lock, with any CUDA context current or none, and while other
 *      threads use other tensors of the same memory. It does not unwind. It waits for no kernel, unless what frees the
 *      memory does (cuMemFree); memory of CUDA goes back after all work that was queued in its context until then.
 *   4. The struct is not to be written. The memory may be, unless DLPACK_FLAG_BITMASK_READ_ONLY is set; no read-only array
 *      goes out in the older form, which has no flags.
 *   5. `strides` are there, in elements and with their signs, and `byte_offset` is 0. Without axes both `shape` and
 *      `strides` are null, without elements `data` is.
 *   6. Memory of the host may be used at once. Memory of CUDA may be used in the order of the stream that the export was
 *      made for (into_dlpack_for, share_dlpack_for); of the legacy default stream if none was named.
 *
 * A pointer that Rust takes over (ManagedTensor::from_raw)
 *
 *   1. It points to a struct that is nobody else's to release. The struct, the numbers behind `shape` and `strides`, and the
 *      memory stay as they are until Rust calls the deleter.
 *   2. That happens once, whether the tensor was used, refused or only dropped, on any thread, with Python's lock or without
 *      it; for memory of CUDA after all work that was queued in its context. A null deleter says that nothing is to be done.
 *   3. The deleter frees the struct too, if it is to be freed. It does not throw, and does not jump out.
 *   4. Of a struct of another major version nothing is read but the version and the deleter.
 *   5. `strides` may be null, for a compact array in C order; `shape` may be without axes. `byte_offset` is added to `data`.
 *   6. Rust writes nothing into the struct, does not look at `manager_ctx`, and writes into the memory only if the flags
 *      allow it. The older form counts as read-only.
 *   7. Work that is pending on memory of CUDA has been ordered, by whoever hands the pointer over, before the stream that
 *      the import names (Import::with_stream), which is the legacy default stream if it names none.
 */
#ifndef INTEROP_DLPACK_H
#define INTEROP_DLPACK_H

#include <stdint.h>

/* The guard of dlpack.h. */
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

/* kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4, kDLComplex 5, kDLBool 6, of 1 lane; dlpack.h has the others. */
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

#ifdef __cplusplus
}
#endif

#endif
#endif
