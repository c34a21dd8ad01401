#include "python_bindings/bind.h"

NB_MODULE(_headrace, module) {
  using namespace headrace::python;
  module.attr("__version__") = HEADRACE_VERSION;
  bind_errors(module);
  bind_units(module);
  bind_communicator(module);
  bind_config(module);
  bind_step_result(module);
  bind_planner(module);
  bind_module_session(module);
  bind_device_memory(module);
}
