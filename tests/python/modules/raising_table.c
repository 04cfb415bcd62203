// Functions of an exchange table that fail with an exception set, which ctypes functions cannot do.

#include <Python.h>

#include "interop_dlpack.h"

static DLManagedTensorVersioned* left;
static long deleted;

static int fail(void) {
    PyErr_SetString(PyExc_RuntimeError, "no tensor today");
    return -1;
}

static int releases(DLManagedTensorVersioned* tensor, void** out) {
    (void)out;
    tensor->deleter(tensor);
    return fail();
}

static int later(DLManagedTensorVersioned* tensor, void** out) {
    (void)out;
    left = tensor;
    return fail();
}

// A function that returns the current stream, and one that allocates: both interrupt.
static int interrupt(void) {
    PyErr_SetString(PyExc_KeyboardInterrupt, "not now");
    return -1;
}

static int stream(int kind, int32_t ordinal, void** out) {
    (void)kind, (void)ordinal, (void)out;
    return interrupt();
}

// Calls Python in its deleter, and so must not run while an exception is set.
static void call_python(DLManagedTensorVersioned* tensor) {
    (void)tensor;
    PyObject* result = PyObject_CallNoArgs((PyObject*)&PyDict_Type);
    Py_XDECREF(result);
    if (result == NULL) PyErr_Print();
    deleted += PyErr_Occurred() == NULL;
}

static int allocate(void* prototype, DLManagedTensorVersioned** out, void* context, void* set_error) {
    static DLManagedTensorVersioned tensor = {{1, 3}, NULL, call_python};
    (void)prototype, (void)context, (void)set_error;
    *out = &tensor;
    interrupt();
    return 0;
}

static PyObject* times_deleted(PyObject* module, PyObject* nothing) {
    (void)module, (void)nothing;
    return PyLong_FromLong(deleted);
}

static PyObject* release_left(PyObject* module, PyObject* nothing) {
    (void)module, (void)nothing;
    if (left != NULL) left->deleter(left);
    left = NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"release_left", release_left, METH_NOARGS, NULL},
    {"times_deleted", times_deleted, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "raising_table", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_raising_table(void) {
    PyObject* module = PyModule_Create(&definition);
    if (module == NULL) return NULL;
    // The addresses of the functions, for a table that is made elsewhere.
    PyModule_AddObject(module, "releases", PyLong_FromVoidPtr((void*)releases));
    PyModule_AddObject(module, "later", PyLong_FromVoidPtr((void*)later));
    PyModule_AddObject(module, "stream", PyLong_FromVoidPtr((void*)stream));
    PyModule_AddObject(module, "allocate", PyLong_FromVoidPtr((void*)allocate));
    return module;
}
