/* Prints a column of src/layout/tables.rs for the CPython whose headers this file is compiled with: where the fields are that the
 * room reads. `crates/inspection/layouts/write.sh` compiles it with each version's headers and runs it. No part of the program. */

#define Py_BUILD_CORE 1
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#include <stdio.h>

#include "pycore_interp.h"
#include "pycore_pystate.h"
#include "pycore_runtime.h"
#if PY_VERSION_HEX >= 0x030B0000
#include "pycore_dict.h"
#include "pycore_frame.h"
#else
#include "pycore_gc.h"
/* Objects/dict-common.h is not installed: the fields of struct _dictkeysobject as of 3.9 and 3.10. */
struct known_dict_keys {
    Py_ssize_t dk_refcnt;
    Py_ssize_t dk_size;
    void *dk_lookup;
    Py_ssize_t dk_usable;
    Py_ssize_t dk_nentries;
    char dk_indices[];
};
#endif

#define NONE ((size_t)0)
#define ROW(name, value) printf(name " %zu\n", (size_t)(value))

int main(void) {
    printf("version %d.%d\n", PY_MAJOR_VERSION, PY_MINOR_VERSION);
    printf("patch %s\n", PY_VERSION);
    printf("minor %d\n", PY_MINOR_VERSION);

    ROW("runtime_interpreters_head", offsetof(_PyRuntimeState, interpreters.head));
#if PY_VERSION_HEX < 0x030C0000
    ROW("gil_in_runtime", offsetof(_PyRuntimeState, ceval.gil));
    ROW("interpreter_gil", NONE);
#else
    ROW("gil_in_runtime", NONE);
    ROW("interpreter_gil", offsetof(PyInterpreterState, ceval.gil));
#endif
    ROW("gil_locked", offsetof(struct _gil_runtime_state, locked));
    ROW("gil_holder", offsetof(struct _gil_runtime_state, last_holder));
    ROW("interpreter_next", offsetof(PyInterpreterState, next));
#if PY_VERSION_HEX >= 0x030B0000
    ROW("interpreter_threads_head", offsetof(PyInterpreterState, threads.head));
#else
    ROW("interpreter_threads_head", offsetof(PyInterpreterState, tstate_head));
#endif
#if PY_VERSION_HEX >= 0x030C0000
    ROW("interpreter_modules", offsetof(PyInterpreterState, imports.modules));
#else
    ROW("interpreter_modules", offsetof(PyInterpreterState, modules));
#endif

    ROW("interpreter_gc", offsetof(PyInterpreterState, gc));
    ROW("gc_generations", offsetof(struct _gc_runtime_state, generations));
    ROW("gc_generation_bytes", sizeof(struct gc_generation));

    ROW("thread_next", offsetof(PyThreadState, next));
    ROW("thread_id", offsetof(PyThreadState, thread_id));
#if PY_VERSION_HEX >= 0x030B0000
    ROW("thread_native_id", offsetof(PyThreadState, native_thread_id));
#else
    ROW("thread_native_id", NONE);
#endif
#if PY_VERSION_HEX >= 0x030D0000
    ROW("thread_frame", offsetof(PyThreadState, current_frame));
    ROW("has_cframe", 0);
    ROW("cframe_current", NONE);
#elif PY_VERSION_HEX >= 0x030B0000
    ROW("thread_frame", offsetof(PyThreadState, cframe));
    ROW("has_cframe", 1);
    ROW("cframe_current", offsetof(_PyCFrame, current_frame));
#else
    ROW("thread_frame", offsetof(PyThreadState, frame));
    ROW("has_cframe", 0);
    ROW("cframe_current", NONE);
#endif

#if PY_VERSION_HEX >= 0x030D0000
    ROW("frame_code", offsetof(_PyInterpreterFrame, f_executable));
    ROW("frame_instruction", offsetof(_PyInterpreterFrame, instr_ptr));
#elif PY_VERSION_HEX >= 0x030B0000
    ROW("frame_code", offsetof(_PyInterpreterFrame, f_code));
    ROW("frame_instruction", offsetof(_PyInterpreterFrame, prev_instr));
#else
    ROW("frame_code", offsetof(PyFrameObject, f_code));
    ROW("frame_instruction", offsetof(PyFrameObject, f_lasti));
#endif
#if PY_VERSION_HEX >= 0x030B0000
    ROW("frame_previous", offsetof(_PyInterpreterFrame, previous));
    ROW("frame_owner", offsetof(_PyInterpreterFrame, owner));
    ROW("frame_locals", offsetof(_PyInterpreterFrame, localsplus));
    ROW("frame_object_frame", offsetof(struct _frame, f_frame));
#else
    ROW("frame_previous", offsetof(PyFrameObject, f_back));
    ROW("frame_owner", NONE);
    ROW("frame_locals", offsetof(PyFrameObject, f_localsplus));
    ROW("frame_object_frame", NONE);
#endif

    ROW("code_filename", offsetof(PyCodeObject, co_filename));
    ROW("code_first_line", offsetof(PyCodeObject, co_firstlineno));
#if PY_VERSION_HEX >= 0x030B0000
    ROW("code_name", offsetof(PyCodeObject, co_qualname));
    ROW("code_bytes", offsetof(PyCodeObject, co_code_adaptive));
    ROW("code_local_names", offsetof(PyCodeObject, co_localsplusnames));
#else
    ROW("code_name", offsetof(PyCodeObject, co_name));
    ROW("code_bytes", offsetof(PyCodeObject, co_code));
    ROW("code_local_names", offsetof(PyCodeObject, co_varnames));
#endif
#if PY_VERSION_HEX >= 0x030A0000
    ROW("code_lines", offsetof(PyCodeObject, co_linetable));
#else
    ROW("code_lines", offsetof(PyCodeObject, co_lnotab));
#endif

    ROW("object_type", offsetof(PyObject, ob_type));
    ROW("type_name", offsetof(PyTypeObject, tp_name));
    ROW("type_flags", offsetof(PyTypeObject, tp_flags));
    ROW("type_basic_size", offsetof(PyTypeObject, tp_basicsize));
    ROW("type_dict_offset", offsetof(PyTypeObject, tp_dictoffset));
    ROW("type_base", offsetof(PyTypeObject, tp_base));
    ROW("type_cached_keys", offsetof(PyHeapTypeObject, ht_cached_keys));

    ROW("unicode_length", offsetof(PyASCIIObject, length));
    ROW("unicode_state", offsetof(PyASCIIObject, state));
    ROW("unicode_ascii_data", sizeof(PyASCIIObject));
    ROW("unicode_compact_data", sizeof(PyCompactUnicodeObject));
    ROW("variable_size", offsetof(PyVarObject, ob_size));
    ROW("bytes_data", offsetof(PyBytesObject, ob_sval));
    ROW("tuple_items", offsetof(PyTupleObject, ob_item));
    ROW("list_items", offsetof(PyListObject, ob_item));
    ROW("float_value", offsetof(PyFloatObject, ob_fval));
#if PY_VERSION_HEX >= 0x030C0000
    ROW("long_size", offsetof(PyLongObject, long_value.lv_tag));
    ROW("long_digits", offsetof(PyLongObject, long_value.ob_digit));
#else
    ROW("long_size", offsetof(PyVarObject, ob_size));
    ROW("long_digits", offsetof(PyLongObject, ob_digit));
#endif
    ROW("dict_used", offsetof(PyDictObject, ma_used));
    ROW("dict_keys", offsetof(PyDictObject, ma_keys));
    ROW("dict_values", offsetof(PyDictObject, ma_values));
#if PY_VERSION_HEX >= 0x030B0000
    ROW("keys_size", offsetof(PyDictKeysObject, dk_log2_index_bytes));
    ROW("keys_kind", offsetof(PyDictKeysObject, dk_kind));
    ROW("keys_entries", offsetof(PyDictKeysObject, dk_nentries));
    ROW("keys_indices", offsetof(PyDictKeysObject, dk_indices));
    ROW("values_first", offsetof(PyDictValues, values));
#else
    ROW("keys_size", offsetof(struct known_dict_keys, dk_size));
    ROW("keys_kind", NONE);
    ROW("keys_entries", offsetof(struct known_dict_keys, dk_nentries));
    ROW("keys_indices", offsetof(struct known_dict_keys, dk_indices));
    ROW("values_first", NONE);
#endif
    ROW("set_mask", offsetof(PySetObject, mask));
    ROW("set_table", offsetof(PySetObject, table));
    ROW("set_used", offsetof(PySetObject, used));
    ROW("weakref_object", offsetof(PyWeakReference, wr_object));
#if PY_VERSION_HEX >= 0x030B0000
    ROW("generator_frame", offsetof(PyGenObject, gi_iframe));
    ROW("generator_state", offsetof(PyGenObject, gi_frame_state));
#else
    ROW("generator_frame", offsetof(PyGenObject, gi_frame));
    ROW("generator_state", NONE);
#endif
    ROW("generator_name", offsetof(PyGenObject, gi_qualname));
    return 0;
}
