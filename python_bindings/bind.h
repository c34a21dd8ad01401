// What every file of the bindings needs; each file binds one public header, and nothing else.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

namespace headrace::python {

namespace nb = nanobind;

void bind_errors(nb::module_& module);
void bind_units(nb::module_& module);
void bind_communicator(nb::module_& module);
void bind_config(nb::module_& module);
void bind_step_result(nb::module_& module);
void bind_planner(nb::module_& module);
void bind_module_session(nb::module_& module);
void bind_device_memory(nb::module_& module);

}  // namespace headrace::python
