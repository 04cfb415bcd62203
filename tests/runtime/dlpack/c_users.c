// What a library in C does with tensors of Rust's, and the tensors that it makes: written to the contract in the header.

#include "interop_dlpack.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// The sum of the elements, which are 16-bit integers of any rank and strides in memory of the host; -1 for others.
static int64_t sum_of(const DLTensor *tensor) {
    if (tensor->device.device_type != 1 || tensor->dtype.code != 0 || tensor->dtype.bits != 16) return -1;
    int64_t index[8] = {0}, sum = 0;
    for (int axis = 0; axis < tensor->ndim; axis++)
        if (tensor->shape[axis] == 0) return 0;
    for (;;) {
        ptrdiff_t at = 0;
        for (int axis = 0; axis < tensor->ndim; axis++) at += (ptrdiff_t)(index[axis] * tensor->strides[axis]);
        int16_t element;
        memcpy(&element, (const char *)tensor->data + tensor->byte_offset + at * (ptrdiff_t)sizeof element, sizeof element);
        sum += element;
        int axis = tensor->ndim - 1;
        while (axis >= 0 && ++index[axis] == tensor->shape[axis]) index[axis--] = 0;
        if (axis < 0) return sum;
    }
}

static void *release_versioned(void *tensor) {
    ((DLManagedTensorVersioned *)tensor)->deleter(tensor);
    return NULL;
}

static void *release_legacy(void *tensor) {
    ((DLManagedTensor *)tensor)->deleter(tensor);
    return NULL;
}

// Releases a tensor on a thread that Rust has never seen.
static int64_t release_elsewhere(void *(*release)(void *), void *tensor, int64_t result) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, release, tensor)) return -2;
    return pthread_join(thread, NULL) ? -2 : result;
}

// The sum of the elements of a tensor that is this function's; it writes the first one, if it may.
int64_t c_use(DLManagedTensorVersioned *tensor) {
    if (tensor->version.major != DLPACK_MAJOR_VERSION) return -3;
    int64_t sum = sum_of(&tensor->dl_tensor);
    if (!(tensor->flags & DLPACK_FLAG_BITMASK_READ_ONLY)) memset(tensor->dl_tensor.data, 0, sizeof(int16_t));
    return release_elsewhere(release_versioned, tensor, sum);
}

int64_t c_use_legacy(DLManagedTensor *tensor) {
    return release_elsewhere(release_legacy, tensor, sum_of(&tensor->dl_tensor));
}

// How many tensors of ours were released, and how many of them as they were made.
static int released, unchanged;

// A tensor of ours, with what belongs to it in one block. `as_made` is what Rust may not have touched.
typedef struct {
    DLManagedTensorVersioned tensor, as_made;
    int64_t shape[2], strides[2];
    int16_t elements[6];
} Block;

static void free_block(DLManagedTensorVersioned *tensor) {
    Block *block = tensor->manager_ctx;
    released++;
    unchanged += memcmp(&block->tensor, &block->as_made, sizeof block->as_made) == 0;
    free(block);
}

// The numbers 1 to 6 as two rows: of a major version, with strides written out or left out, that is to be released or not.
DLManagedTensorVersioned *c_make(uint32_t major, int with_strides, int with_deleter) {
    Block *block = calloc(1, sizeof *block);
    if (!block) return NULL;
    for (int16_t at = 0; at < 6; at++) block->elements[at] = (int16_t)(at + 1);
    block->shape[0] = 2, block->shape[1] = 3, block->strides[0] = 3, block->strides[1] = 1;
    DLManagedTensorVersioned *tensor = &block->tensor;
    tensor->version.major = major;
    tensor->manager_ctx = block;
    tensor->deleter = with_deleter ? free_block : NULL;
    // The first element is found by the offset.
    tensor->dl_tensor.data = block;
    tensor->dl_tensor.byte_offset = offsetof(Block, elements);
    tensor->dl_tensor.device.device_type = 1;
    tensor->dl_tensor.ndim = 2;
    tensor->dl_tensor.dtype.bits = 16;
    tensor->dl_tensor.dtype.lanes = 1;
    // What nobody may look at in a struct of another version.
    tensor->dl_tensor.shape = major == DLPACK_MAJOR_VERSION ? block->shape : (int64_t *)8;
    tensor->dl_tensor.strides = with_strides ? block->strides : NULL;
    memcpy(&block->as_made, tensor, sizeof *tensor);
    return tensor;
}

void c_free(DLManagedTensorVersioned *tensor) { free(tensor->manager_ctx); }
int c_released(void) { return released; }
int c_unchanged(void) { return unchanged; }

// The layout of what the header declares, which Rust asserts as well.
int c_layout(size_t *out) {
    const size_t all[] = {
        sizeof(DLManagedTensorVersioned), offsetof(DLManagedTensorVersioned, manager_ctx),
        offsetof(DLManagedTensorVersioned, deleter), offsetof(DLManagedTensorVersioned, flags),
        offsetof(DLManagedTensorVersioned, dl_tensor), sizeof(DLManagedTensor), offsetof(DLManagedTensor, manager_ctx),
        offsetof(DLManagedTensor, deleter), sizeof(DLTensor), offsetof(DLTensor, device), offsetof(DLTensor, ndim),
        offsetof(DLTensor, dtype), offsetof(DLTensor, shape), offsetof(DLTensor, strides),
        offsetof(DLTensor, byte_offset),
    };
    memcpy(out, all, sizeof all);
    return sizeof all / sizeof *all;
}
