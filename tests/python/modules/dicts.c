/* Exports and imports an interface dict in C: the lower bound for the benchmarks. Nothing is checked. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

enum { SHAPE, TYPESTR, DATA, STRIDES, VERSION, STREAM, KEYS };
static const char *const spelled[KEYS] = {"shape", "typestr", "data", "strides", "version", "stream"};
static PyObject *keys[KEYS], *name_interface, *typestr_f4;

/* Creates the dict of a 4x4 array of float32 on a GPU that does not exist, anew for each call. */
static PyObject *interface(PyObject *self, void *unused) {
    PyObject *dict = PyDict_New();
    PyObject *values[KEYS] = {
        [SHAPE] = Py_BuildValue("(ii)", 4, 4),
        [TYPESTR] = Py_NewRef(typestr_f4),
        [DATA] = Py_BuildValue("(KO)", 0x7f0000000000ULL, Py_False),
        [STRIDES] = Py_NewRef(Py_None),
        [VERSION] = PyLong_FromLong(3),
        [STREAM] = PyLong_FromLong(1),
    };
    for (int at = 0; at < KEYS; at++) {
        PyDict_SetItem(dict, keys[at], values[at]);
        Py_DECREF(values[at]);
    }
    return dict;
}

/* nbytes(object): the size in bytes of the contiguous array that the dict describes; each key is read. */
static PyObject *nbytes(PyObject *module, PyObject *object) {
    PyObject *dict = PyObject_GetAttr(object, name_interface), *values[KEYS];
    if (!dict) return NULL;
    for (int at = 0; at < KEYS; at++) values[at] = PyDict_GetItem(dict, keys[at]);
    long bytes = PyUnicode_READ_CHAR(values[TYPESTR], 2) - '0';
    for (Py_ssize_t axis = 0; axis < PyTuple_GET_SIZE(values[SHAPE]); axis++)
        bytes *= PyLong_AsLong(PyTuple_GET_ITEM(values[SHAPE], axis));
    unsigned long long address = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(values[DATA], 0));
    int readonly = PyObject_IsTrue(PyTuple_GET_ITEM(values[DATA], 1));
    long version = PyLong_AsLong(values[VERSION]), stream = PyLong_AsLong(values[STREAM]);
    int known = address && stream && version >= readonly && values[STRIDES] == Py_None;
    Py_DECREF(dict);
    return PyLong_FromLong(known ? bytes : 0);
}

static PyGetSetDef members[] = {{"__cuda_array_interface__", interface, NULL, NULL, NULL}, {NULL}};
static PyTypeObject ArrayType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dicts.Array",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_getset = members,
    .tp_new = PyType_GenericNew,
};
static PyMethodDef functions[] = {{"nbytes", nbytes, METH_O, NULL}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "dicts", NULL, -1, functions};

PyMODINIT_FUNC PyInit_dicts(void) {
    for (int at = 0; at < KEYS; at++) keys[at] = PyUnicode_InternFromString(spelled[at]);
    name_interface = PyUnicode_InternFromString("__cuda_array_interface__");
    typestr_f4 = PyUnicode_InternFromString("<f4");
    PyObject *self = PyModule_Create(&module);
    if (!self || PyModule_AddType(self, &ArrayType)) return NULL;
    return self;
}
