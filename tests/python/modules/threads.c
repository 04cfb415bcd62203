/* Threads that are unknown to Python, and what they observe. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdlib.h>

#include "interop_dlpack.h"

/* A host function that is queued on a stream. It records whether its thread is attached to the interpreter. */
static int attached;

static void note_attached(void *unused) { attached = PyGILState_Check(); }

/* attachment(): the address of that function; attachment(1): the recorded value. */
static PyObject *attachment(PyObject *module, PyObject *arguments) {
    if (PyTuple_GET_SIZE(arguments)) return PyBool_FromLong(attached);
    attached = -1;
    return PyLong_FromVoidPtr((void *)note_attached);
}

/* Tensors whose deleters are called one after the other by a thread that is unknown to Python. */
static DLManagedTensorVersioned **let_go;
static pthread_t letting_go;

static void *let_all_go(void *unused) {
    for (DLManagedTensorVersioned **next = let_go; *next; next++) (*next)->deleter(*next);
    free(let_go);
    return NULL;
}

/* release_elsewhere(capsules) starts the thread, release_elsewhere() waits for it. */
static PyObject *release_elsewhere(PyObject *module, PyObject *capsules) {
    Py_ssize_t count = PyTuple_GET_SIZE(capsules);
    if (!count) {
        Py_BEGIN_ALLOW_THREADS
        pthread_join(letting_go, NULL);
        Py_END_ALLOW_THREADS
        Py_RETURN_NONE;
    }
    let_go = calloc(count + 1, sizeof *let_go);
    for (Py_ssize_t at = 0; at < count; at++) {
        let_go[at] = PyCapsule_GetPointer(PyTuple_GET_ITEM(capsules, at), "dltensor_versioned");
        if (!let_go[at] || PyCapsule_SetName(PyTuple_GET_ITEM(capsules, at), "used_dltensor_versioned")) return NULL;
    }
    pthread_create(&letting_go, NULL, let_all_go, NULL);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"attachment", attachment, METH_VARARGS, NULL},
    {"release_elsewhere", release_elsewhere, METH_VARARGS, NULL},
    {NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "threads", NULL, -1, functions};

PyMODINIT_FUNC PyInit_threads(void) { return PyModule_Create(&module); }
