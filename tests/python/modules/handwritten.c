/* A handwritten extension for one kind of array that implements the whole of CPython's interface.
 *
 * It is the lower bound for the benchmarks and a partner in the tests. Imports are checked only where it cannot be
 * avoided. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdlib.h>

#include "interop_dlpack.h"

static const char FRESH[] = "dltensor_versioned", USED[] = "used_dltensor_versioned";
static PyObject *name_dlpack, *name_max_version, *names_max_version, *version_1_3;

/* A 4x4 array of float32, or a view of an imported one. */
typedef struct {
    PyObject_HEAD
    DLManagedTensorVersioned *source;
    float own[16];
} Array;
static PyTypeObject ArrayType;

typedef struct { DLManagedTensorVersioned managed; int64_t numbers[4]; } Package;

static void release(DLManagedTensorVersioned *managed) {
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)managed->manager_ctx);
    PyGILState_Release(state);
    free(managed);
}

static void destroy(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, FRESH)) {
        DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, FRESH);
        managed->deleter(managed);
    }
}

static DLManagedTensorVersioned *pack(Array *array) {
    Package *package = malloc(sizeof(Package));
    DLManagedTensorVersioned *managed = &package->managed;
    managed->version = (DLPackVersion){1, 3};
    managed->manager_ctx = Py_NewRef((PyObject *)array);
    managed->deleter = release;
    managed->flags = 0;
    if (array->source) {
        managed->dl_tensor = array->source->dl_tensor;
        managed->flags = array->source->flags & 1;
    } else {
        managed->dl_tensor = (DLTensor){array->own, {1, 0}, 2, {2, 32, 1}, NULL, NULL, 0};
        package->numbers[0] = package->numbers[1] = package->numbers[2] = 4;
        package->numbers[3] = 1;
        managed->dl_tensor.shape = package->numbers;
        managed->dl_tensor.strides = package->numbers + 2;
    }
    return managed;
}

static PyObject *dlpack(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    Py_ssize_t keywords = names ? PyTuple_GET_SIZE(names) : 0;
    for (Py_ssize_t at = 0; at < keywords; at++) {
        PyObject *name = PyTuple_GET_ITEM(names, at), *value = arguments[count + at];
        if (name == name_max_version && value != Py_None
            && (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) != 2
                || PyLong_AsLong(PyTuple_GET_ITEM(value, 0)) < 1)) {
            PyErr_SetString(PyExc_BufferError, "only versioned capsules");
            return NULL;
        }
    }
    DLManagedTensorVersioned *managed = pack((Array *)self);
    return PyCapsule_New(managed, FRESH, destroy);
}

static PyObject *dlpack_device(PyObject *self, PyObject *unused) {
    return Py_BuildValue("(ii)", 1, 0);
}

/* Whether the functions that can fail do so (1), or raise an exception and report success (2). */
static long refusing;

static int table_from_object(void *object, DLManagedTensorVersioned **out) {
    if (refusing == 1) {
        PyErr_SetString(PyExc_BufferError, "not by the table");
        return -1;
    }
    *out = pack(object);
    if (refusing) PyErr_SetString(PyExc_RuntimeError, "and yet");
    return 0;
}
static DLPackExchangeAPI table = {{{1, 3}, NULL}, NULL, table_from_object, NULL, NULL, NULL};

static DLManagedTensorVersioned *take(PyObject *object) {
    PyObject *arguments[] = {NULL, object, version_1_3};
    PyObject *capsule =
        PyObject_VectorcallMethod(name_dlpack, arguments + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, names_max_version);
    if (!capsule) return NULL;
    DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, FRESH);
    if (managed) PyCapsule_SetName(capsule, USED);
    Py_DECREF(capsule);
    return managed;
}

/* Imports a typed view of two axes. */
static PyObject *is_square(PyObject *module, PyObject *object) {
    DLManagedTensorVersioned *managed = take(object);
    if (!managed) return NULL;
    int square = managed->dl_tensor.shape[0] == managed->dl_tensor.shape[1];
    managed->deleter(managed);
    return PyBool_FromLong(square);
}

static PyObject *asarray(PyObject *module, PyObject *object) {
    DLManagedTensorVersioned *managed = take(object);
    if (!managed) return NULL;
    Array *array = PyObject_New(Array, &ArrayType);
    array->source = managed;
    return (PyObject *)array;
}

static DLPackExchangeAPI *table_of(PyObject *object) {
    PyObject *capsule = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__dlpack_c_exchange_api__");
    if (!capsule) return NULL;
    DLPackExchangeAPI *found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_DECREF(capsule);
    return found;
}

/* The table of the type, looked up once. */
static DLPackExchangeAPI *known_table_of(PyObject *object) {
    static PyTypeObject *type;
    static DLPackExchangeAPI *known;
    if (Py_TYPE(object) != type) {
        known = table_of(object);
        if (!known) return NULL;
        type = Py_TYPE(object);
    }
    return known;
}

/* Imports through the table of the type. */
static PyObject *is_square_by_table(PyObject *module, PyObject *object) {
    DLManagedTensorVersioned *managed;
    DLPackExchangeAPI *known = known_table_of(object);
    if (!known || known->managed_tensor_from_py_object_no_sync(object, &managed)) return NULL;
    int square = managed->dl_tensor.shape[0] == managed->dl_tensor.shape[1];
    managed->deleter(managed);
    return PyBool_FromLong(square);
}

static PyObject *array_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    return type->tp_alloc(type, 0);
}

static void array_free(PyObject *self) {
    DLManagedTensorVersioned *source = ((Array *)self)->source;
    if (source && source->deleter) source->deleter(source);
    Py_TYPE(self)->tp_free(self);
}

/* Reports the results of a foreign table; each function is called once. Returns a dict, or the exception that the
 * function set. */
static void set_error(void *context, const char *kind, const char *message) {
    PyList_Append(context, Py_BuildValue("(ss)", kind, message));
}

static PyObject *facts_of(const DLTensor *tensor) {
    PyObject *shape = PyList_New(0), *strides = PyList_New(0);
    for (int axis = 0; axis < tensor->ndim; axis++) {
        PyList_Append(shape, PyLong_FromLongLong(tensor->shape[axis]));
        if (tensor->strides) PyList_Append(strides, PyLong_FromLongLong(tensor->strides[axis]));
    }
    return Py_BuildValue(
        "{s:K,s:(ii),s:(iii),s:N,s:N,s:K}", "data", (unsigned long long)(uintptr_t)tensor->data, "device",
        tensor->device.device_type, tensor->device.device_id, "dtype", tensor->dtype.code, tensor->dtype.bits, tensor->dtype.lanes,
        "shape", PyList_AsTuple(shape), "strides", PyList_AsTuple(strides), "byte_offset",
        (unsigned long long)tensor->byte_offset);
}

static PyObject *table_members(PyObject *module, PyObject *object) {
    DLPackExchangeAPI *found = table_of(object);
    if (!found) return NULL;
    return Py_BuildValue(
        "{s:(II),s:O,s:(NNNNN)}", "version", found->header.version.major, found->header.version.minor, "previous",
        found->header.prev_api ? Py_True : Py_False, "functions", PyBool_FromLong(found->managed_tensor_allocator != NULL),
        PyBool_FromLong(found->managed_tensor_from_py_object_no_sync != NULL), PyBool_FromLong(found->managed_tensor_to_py_object_no_sync != NULL),
        PyBool_FromLong(found->dltensor_from_py_object_no_sync != NULL), PyBool_FromLong(found->current_work_stream != NULL));
}

/* table_import(type_owner, object): the description of an owned tensor, its version and flags; it is released again. */
static PyObject *table_import(PyObject *module, PyObject *arguments) {
    PyObject *owner, *object;
    DLManagedTensorVersioned *managed;
    if (!PyArg_ParseTuple(arguments, "OO", &owner, &object)) return NULL;
    DLPackExchangeAPI *found = table_of(owner);
    if (!found || found->managed_tensor_from_py_object_no_sync(object, &managed)) return NULL;
    PyObject *facts = Py_BuildValue("(N(II)K)", facts_of(&managed->dl_tensor), managed->version.major,
                                    managed->version.minor, (unsigned long long)managed->flags);
    managed->deleter(managed);
    return facts;
}

/* table_wrap(type_owner, object): a new object of the first object's type around memory of the second. */
static PyObject *table_wrap(PyObject *module, PyObject *arguments) {
    PyObject *owner, *object;
    void *wrapped;
    if (!PyArg_ParseTuple(arguments, "OO", &owner, &object)) return NULL;
    DLPackExchangeAPI *found = table_of(owner);
    DLManagedTensorVersioned *managed = found ? take(object) : NULL;
    if (!managed || found->managed_tensor_to_py_object_no_sync(managed, &wrapped)) return NULL;
    return wrapped;
}

/* table_allocate(type_owner, shape, code, bits, lanes, device type, device id): the description, or the reported
 * errors. */
static PyObject *table_allocate(PyObject *module, PyObject *arguments) {
    PyObject *owner, *shape;
    DLTensor prototype = {0};
    int code, bits, lanes;
    int64_t numbers[64];
    if (!PyArg_ParseTuple(arguments, "OO!iiiii", &owner, &PyTuple_Type, &shape, &code, &bits, &lanes,
                          &prototype.device.device_type, &prototype.device.device_id))
        return NULL;
    DLPackExchangeAPI *found = table_of(owner);
    if (!found) return NULL;
    prototype.ndim = (int32_t)PyTuple_GET_SIZE(shape);
    for (int axis = 0; axis < prototype.ndim; axis++) numbers[axis] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, axis));
    prototype.dtype.code = code, prototype.dtype.bits = bits, prototype.dtype.lanes = lanes;
    prototype.shape = numbers;
    /* Neither may be dereferenced. */
    prototype.data = (void *)8, prototype.strides = (int64_t *)8;
    PyObject *errors = PyList_New(0);
    DLManagedTensorVersioned *managed;
    if (found->managed_tensor_allocator(&prototype, &managed, errors, set_error)) return errors;
    Py_DECREF(errors);
    PyObject *facts = facts_of(&managed->dl_tensor);
    managed->deleter(managed);
    return facts;
}

/* table_stream(type_owner, device type, device id): the stream as a number. */
static PyObject *table_stream(PyObject *module, PyObject *arguments) {
    PyObject *owner;
    int type, id;
    void *stream = (void *)8;
    if (!PyArg_ParseTuple(arguments, "Oii", &owner, &type, &id)) return NULL;
    DLPackExchangeAPI *found = table_of(owner);
    if (!found || found->current_work_stream(type, id, &stream)) return NULL;
    return PyLong_FromVoidPtr(stream);
}

/* A capsule of an array on a GPU that does not exist, at an address that is never read. */
static PyObject *imagined(PyObject *module, PyObject *unused) {
    static int64_t numbers[] = {4, 4, 4, 1};
    static DLManagedTensorVersioned managed = {{1, 3}, NULL, NULL, 0, {(void *)0x7f0000000000, {2, 0}, 2, {2, 32, 1}, numbers, numbers + 2, 0}};
    return PyCapsule_New(&managed, FRESH, NULL);
}

static PyMethodDef array_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))dlpack, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"__dlpack_device__", dlpack_device, METH_NOARGS, NULL},
    {NULL},
};
static PyTypeObject ArrayType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "handwritten.Array",
    .tp_basicsize = sizeof(Array),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = array_methods,
    .tp_new = array_new,
    .tp_dealloc = array_free,
};
/* Arrays whose methods are not determined by the type alone: instances of one type have a dict, the other has its own
 * `tp_getattro`. */
typedef struct {
    Array array;
    PyObject *dict;
} Dressed;

static void dressed_free(PyObject *self) {
    Py_CLEAR(((Dressed *)self)->dict);
    array_free(self);
}

static PyTypeObject DressedType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "handwritten.Dressed",
    .tp_basicsize = sizeof(Dressed),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = array_methods,
    .tp_dictoffset = offsetof(Dressed, dict),
    .tp_new = array_new,
    .tp_dealloc = dressed_free,
};

static PyObject *watched_get(PyObject *self, PyObject *name) {
    if (refusing && PyObject_RichCompareBool(name, name_dlpack, Py_EQ) == 1) {
        PyErr_SetString(PyExc_BufferError, "not today");
        return NULL;
    }
    return PyObject_GenericGetAttr(self, name);
}

static PyObject *refuse(PyObject *module, PyObject *whether) {
    refusing = PyLong_AsLong(whether);
    Py_RETURN_NONE;
}

static PyTypeObject WatchedType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "handwritten.Watched",
    .tp_basicsize = sizeof(Array),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = array_methods,
    .tp_getattro = watched_get,
    .tp_new = array_new,
    .tp_dealloc = array_free,
};

static PyMethodDef functions[] = {
    {"is_square", is_square, METH_O, NULL},
    {"is_square_by_table", is_square_by_table, METH_O, NULL},
    {"asarray", asarray, METH_O, NULL},
    {"imagined", imagined, METH_NOARGS, NULL},
    {"refuse", refuse, METH_O, NULL},
    {"table_members", table_members, METH_O, NULL},
    {"table_import", table_import, METH_VARARGS, NULL},
    {"table_wrap", table_wrap, METH_VARARGS, NULL},
    {"table_allocate", table_allocate, METH_VARARGS, NULL},
    {"table_stream", table_stream, METH_VARARGS, NULL},
    {NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "handwritten", NULL, -1, functions};

PyMODINIT_FUNC PyInit_handwritten(void) {
    name_dlpack = PyUnicode_InternFromString("__dlpack__");
    name_max_version = PyUnicode_InternFromString("max_version");
    names_max_version = PyTuple_Pack(1, name_max_version);
    version_1_3 = Py_BuildValue("(ii)", 1, 3);
    PyObject *capsule = PyCapsule_New(&table, "dlpack_exchange_api", NULL);
    if (PyType_Ready(&ArrayType) || PyType_Ready(&DressedType) || PyType_Ready(&WatchedType) || !capsule
        || PyDict_SetItemString(ArrayType.tp_dict, "__dlpack_c_exchange_api__", capsule))
        return NULL;
    PyType_Modified(&ArrayType);
    PyObject *self = PyModule_Create(&module);
    if (!self) return NULL;
    PyModule_AddObjectRef(self, "Array", (PyObject *)&ArrayType);
    PyModule_AddObjectRef(self, "Dressed", (PyObject *)&DressedType);
    PyModule_AddObjectRef(self, "Watched", (PyObject *)&WatchedType);
    return self;
}
