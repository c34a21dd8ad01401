// errors.h: each kind of error becomes the exception of Python's that callers expect.
#include "headrace/errors.h"

#include "python_bindings/bind.h"

namespace headrace::python {
namespace {

void set_os_error(const IoError& error) {
  const nb::object arguments = nb::make_tuple(error.code(), error.what(), error.path());
  PyErr_SetObject(PyExc_OSError, arguments.ptr());
}

}  // namespace

void bind_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const UsageError& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    } catch (const DoesNotFit& error) {
      PyErr_SetString(PyExc_MemoryError, error.what());
    } catch (const IoError& error) {
      set_os_error(error);
    }
  });
}

}  // namespace headrace::python
