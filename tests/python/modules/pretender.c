/* An immutable class whose `__dlpack__` looks like a method and returns another function for each second object. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct {
    PyObject_HEAD
    PyObject *answer; /* called with the number of the function */
    int which;
} Array;

static PyObject *first(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return PyObject_CallFunction(((Array *)self)->answer, "i", 1);
}
static PyObject *second(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
    return PyObject_CallFunction(((Array *)self)->answer, "i", 2);
}
static PyMethodDef functions[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))first, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"__dlpack__", (PyCFunction)(void (*)(void))second, METH_FASTCALL | METH_KEYWORDS, NULL},
};

static PyObject *bound(PyObject *self, PyObject *object, PyObject *type) {
    return object ? PyCFunction_New(&functions[((Array *)object)->which], object) : Py_NewRef(self);
}
static PyObject *called(PyObject *self, PyObject *values, PyObject *names) {
    PyErr_SetString(PyExc_TypeError, "called without an object");
    return NULL;
}
static PyTypeObject MethodType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pretender.Method",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_descr_get = bound,
    .tp_call = called,
};

static PyObject *make(PyTypeObject *type, PyObject *values, PyObject *names) {
    Array *self = (Array *)type->tp_alloc(type, 0);
    if (self && !PyArg_ParseTuple(values, "Oi", &self->answer, &self->which)) return NULL;
    if (self) Py_INCREF(self->answer);
    return (PyObject *)self;
}
static void drop(PyObject *self) {
    Py_XDECREF(((Array *)self)->answer);
    PyObject_Free(self);
}
static PyObject *device(PyObject *self, PyObject *unused) { return Py_BuildValue("(ii)", 1, 0); }
static PyMethodDef methods[] = {{"__dlpack_device__", device, METH_NOARGS, NULL}, {NULL}};
static PyTypeObject ArrayType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pretender.Array",
    .tp_basicsize = sizeof(Array),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = make,
    .tp_dealloc = drop,
    .tp_methods = methods,
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "pretender", NULL, -1, NULL};

PyMODINIT_FUNC PyInit_pretender(void) {
    if (PyType_Ready(&MethodType)) return NULL;
    PyObject *method = PyObject_New(PyObject, &MethodType);
    if (!method || PyType_Ready(&ArrayType)) return NULL;
    if (PyDict_SetItemString(ArrayType.tp_dict, "__dlpack__", method)) return NULL;
    PyType_Modified(&ArrayType);
    PyObject *self = PyModule_Create(&module);
    if (!self || PyModule_AddType(self, &ArrayType)) return NULL;
    return self;
}
