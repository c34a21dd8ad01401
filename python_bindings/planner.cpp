#include "headrace/planner.h"

#include "headrace/train.h"
#include "python_bindings/bind.h"

namespace headrace::python {

void bind_planner(nb::module_& module) {
  nb::class_<RunPlan>(module, "RunPlan")
      .def_ro("parameters", &RunPlan::parameters)
      .def_prop_ro("device_bytes", [](const RunPlan& self) { return self.memory.device.total(); })
      .def_prop_ro("host_bytes", [](const RunPlan& self) { return self.memory.host.total(); })
      .def_prop_ro("nvme_bytes", [](const RunPlan& self) { return self.memory.nvme.total(); })
      .def("ledger", [](const RunPlan& self) { return ledger_table(self.memory); });
}

}  // namespace headrace::python
