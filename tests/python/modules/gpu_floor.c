/* The lower bounds for the figures of `speed.py`: bare calls without checks and without ownership beyond the call.
 *
 * The loops are in C, so that no figure includes Python's loop. Each function returns the nanoseconds of one
 * iteration. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <time.h>

#include "interop_dlpack.h"

static int (*attributes)(unsigned, int *, void **, unsigned long long);
static int (*event_create)(void **, unsigned), (*event_record)(void *, void *), (*stream_wait)(void *, void *, unsigned);

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

/* pointer_facts(address, turns): six attributes in one call. */
static PyObject *pointer_facts(PyObject *module, PyObject *arguments) {
    unsigned long long address;
    long turns;
    if (!PyArg_ParseTuple(arguments, "Kl", &address, &turns)) return NULL;
    int asked[6] = {2, 9, 8, 1, 11, 12};
    uint64_t answers[6];
    void *places[6];
    for (int at = 0; at < 6; at++) places[at] = answers + at;
    double start = now();
    for (long turn = 0; turn < turns; turn++) {
        int code = attributes(6, asked, places, address);
        if (code) return PyErr_Format(PyExc_RuntimeError, "cuPointerGetAttributes: %d", code);
    }
    return PyFloat_FromDouble((now() - start) / turns);
}

/* edge(from, to, turns): record and wait, on one event. */
static PyObject *edge(PyObject *module, PyObject *arguments) {
    unsigned long long from, to;
    long turns;
    void *event;
    if (!PyArg_ParseTuple(arguments, "KKl", &from, &to, &turns)) return NULL;
    if (event_create(&event, 2)) return PyErr_Format(PyExc_RuntimeError, "cuEventCreate");
    double start = now();
    for (long turn = 0; turn < turns; turn++) {
        if (event_record(event, (void *)from) || stream_wait((void *)to, event, 0))
            return PyErr_Format(PyExc_RuntimeError, "record or wait failed");
    }
    return PyFloat_FromDouble((now() - start) / turns);
}

/* The exchange table of an object's type. */
static DLPackExchangeAPI *table_of(PyObject *object) {
    PyObject *value = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__dlpack_c_exchange_api__");
    if (!value) return NULL;
    DLPackExchangeAPI *table = PyCapsule_GetPointer(value, "dlpack_exchange_api");
    Py_DECREF(value);
    return table;
}

static PyObject *exchange(PyObject *module, PyObject *arguments) {
    PyObject *object;
    long turns;
    if (!PyArg_ParseTuple(arguments, "Ol", &object, &turns)) return NULL;
    DLPackExchangeAPI *table = table_of(object);
    if (!table) return NULL;
    double start = now();
    for (long turn = 0; turn < turns; turn++) {
        DLManagedTensorVersioned *managed;
        if (table->managed_tensor_from_py_object_no_sync(object, &managed)) return NULL;
        managed->deleter(managed);
    }
    return PyFloat_FromDouble((now() - start) / turns);
}

/* calls(function, object, turns): calls from C, because Python's loop would dominate a fast call. */
static PyObject *calls(PyObject *module, PyObject *arguments) {
    PyObject *function, *object, *names = NULL, *value = NULL;
    long turns;
    if (!PyArg_ParseTuple(arguments, "OOl|OO", &function, &object, &turns, &names, &value)) return NULL;
    PyObject *passed[] = {NULL, object, value};
    double start = now();
    for (long turn = 0; turn < turns; turn++) {
        PyObject *result = PyObject_Vectorcall(function, passed + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
        if (!result) return NULL;
        Py_DECREF(result);
    }
    return PyFloat_FromDouble((now() - start) / turns);
}

/* methods(object, name, turns, names, value): object.name(keyword=value), as an importer calls it. */
static PyObject *methods(PyObject *module, PyObject *arguments) {
    PyObject *object, *name, *names, *value;
    long turns;
    if (!PyArg_ParseTuple(arguments, "OOlOO", &object, &name, &turns, &names, &value)) return NULL;
    PyObject *passed[] = {NULL, object, value};
    double start = now();
    for (long turn = 0; turn < turns; turn++) {
        PyObject *result = PyObject_VectorcallMethod(name, passed + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
        if (!result) return NULL;
        Py_DECREF(result);
    }
    return PyFloat_FromDouble((now() - start) / turns);
}

/* gets(object, name, turns): object.name. */
static PyObject *gets(PyObject *module, PyObject *arguments) {
    PyObject *object, *name;
    long turns;
    if (!PyArg_ParseTuple(arguments, "OOl", &object, &name, &turns)) return NULL;
    double start = now();
    for (long turn = 0; turn < turns; turn++) {
        PyObject *result = PyObject_GetAttr(object, name);
        if (!result) return NULL;
        Py_DECREF(result);
    }
    return PyFloat_FromDouble((now() - start) / turns);
}

static PyMethodDef functions[] = {
    {"pointer_facts", pointer_facts, METH_VARARGS, NULL}, {"edge", edge, METH_VARARGS, NULL},
    {"exchange", exchange, METH_VARARGS, NULL},           {"calls", calls, METH_VARARGS, NULL},
    {"methods", methods, METH_VARARGS, NULL},             {"gets", gets, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "gpu_floor", NULL, -1, functions};

PyMODINIT_FUNC PyInit_gpu_floor(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return PyErr_Format(PyExc_ImportError, "%s", dlerror());
    *(void **)&attributes = dlsym(driver, "cuPointerGetAttributes");
    *(void **)&event_create = dlsym(driver, "cuEventCreate");
    *(void **)&event_record = dlsym(driver, "cuEventRecord");
    *(void **)&stream_wait = dlsym(driver, "cuStreamWaitEvent");
    if (!attributes || !event_create || !event_record || !stream_wait)
        return PyErr_Format(PyExc_ImportError, "a function of the driver is missing");
    return PyModule_Create(&definition);
}
