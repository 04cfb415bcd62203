/* A program that embeds Python and keeps tensors longer than the objects they came from: bug 52.
 *
 * Its threads are unknown to Python. One releases while the interpreter runs and another thread holds the GIL; one
 * releases after the interpreter has ended. */
#include <Python.h>
#include <pthread.h>
#include <stdio.h>

#include "interop_dlpack.h"

static void *release(void *tensor) {
    ((DLManagedTensorVersioned *)tensor)->deleter(tensor);
    return NULL;
}

/* Runs on another thread while this one keeps its locks. */
static void release_elsewhere(DLManagedTensorVersioned *tensor) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, release, tensor) != 0 || pthread_join(thread, NULL) != 0) {
        puts("no thread");
    }
}

/* Takes the tensor of a new array, as a consumer does. */
static DLManagedTensorVersioned *take(PyObject *scope, const char *array) {
    PyObject *capsule = PyRun_String(array, Py_eval_input, scope, scope);
    DLManagedTensorVersioned *tensor = capsule ? PyCapsule_GetPointer(capsule, "dltensor_versioned") : NULL;
    if (tensor == NULL || PyCapsule_SetName(capsule, "used_dltensor_versioned") != 0) {
        PyErr_Print();
        exit(1);
    }
    Py_DECREF(capsule);
    return tensor;
}

static long live_exports(PyObject *scope) {
    PyObject *count = PyRun_String("interop_demo.live_exports()", Py_eval_input, scope, scope);
    long number = count ? PyLong_AsLong(count) : -1;
    Py_XDECREF(count);
    return number;
}

int main(void) {
    Py_Initialize();
    PyObject *scope = PyModule_GetDict(PyImport_AddModule("__main__"));
    if (PyRun_SimpleString("import interop_demo") != 0) {
        return 1;
    }
    static const char *FRESH = "interop_demo.Array.full((3, 4), 2.5).__dlpack__(max_version=(1, 0))";
    DLManagedTensorVersioned *first = take(scope, FRESH), *second = take(scope, FRESH), *last = take(scope, FRESH);
    printf("%ld", live_exports(scope));
    release_elsewhere(first);
    printf(" %ld %g", live_exports(scope), ((float *)second->dl_tensor.data)[11]);
    release_elsewhere(second);
    printf(" %ld", live_exports(scope));
    if (Py_FinalizeEx() != 0) {
        return 1;
    }
    printf(" %g\n", ((float *)last->dl_tensor.data)[11]);
    release_elsewhere(last);
    return 0;
}
