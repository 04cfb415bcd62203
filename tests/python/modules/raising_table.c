// Functions of an exchange table that fail with an exception set, which ctypes functions cannot do.

#include <Python.h>
#include <stdint.h>

// The fields up to the deleter; the others are not used.
typedef struct Tensor {
    uint32_t version[2];
    void* context;
    void (*deleter)(struct Tensor*);
} Tensor;

static Tensor* left;

static int fail(void) {
    PyErr_SetString(PyExc_RuntimeError, "no tensor today");
    return -1;
}

static int keeps(Tensor* tensor, void** out) {
    (void)tensor, (void)out;
    return fail();
}

static int releases(Tensor* tensor, void** out) {
    (void)out;
    tensor->deleter(tensor);
    return fail();
}

static int later(Tensor* tensor, void** out) {
    (void)out;
    left = tensor;
    return fail();
}

static PyObject* release_left(PyObject* module, PyObject* nothing) {
    (void)module, (void)nothing;
    if (left != NULL) left->deleter(left);
    left = NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"release_left", release_left, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "raising_table", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_raising_table(void) {
    PyObject* module = PyModule_Create(&definition);
    if (module == NULL) return NULL;
    // The addresses of the functions, for a table that is made elsewhere.
    PyModule_AddObject(module, "keeps", PyLong_FromVoidPtr((void*)keeps));
    PyModule_AddObject(module, "releases", PyLong_FromVoidPtr((void*)releases));
    PyModule_AddObject(module, "later", PyLong_FromVoidPtr((void*)later));
    return module;
}
