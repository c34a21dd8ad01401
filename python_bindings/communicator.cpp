#include "headrace/communicator.h"

#include "python_bindings/bind.h"

namespace headrace::python {

void bind_communicator(nb::module_& module) {
  nb::class_<LaunchInfo>(module, "LaunchInfo")
      .def(nb::init<>())
      .def_rw("rank", &LaunchInfo::rank)
      .def_rw("size", &LaunchInfo::size)
      .def_rw("local_rank", &LaunchInfo::local_rank)
      .def_rw("local_size", &LaunchInfo::local_size)
      .def_rw("launcher", &LaunchInfo::launcher);
  module.def("launch_info", &launch_info);
}

}  // namespace headrace::python
