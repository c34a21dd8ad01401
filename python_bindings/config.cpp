#include "headrace/config.h"

#include "python_bindings/bind.h"

namespace headrace::python {
namespace {

void bind_schedule(nb::module_& module) {
  nb::class_<ScheduleOptions>(module, "ScheduleOptions")
      .def_ro("peak", &ScheduleOptions::peak)
      .def_ro("warmup_steps", &ScheduleOptions::warmup_steps)
      .def_ro("total_steps", &ScheduleOptions::total_steps)
      .def_prop_ro("of_deepspeed", &ScheduleOptions::of_deepspeed);
  module.def("learning_rate", &learning_rate, nb::arg("schedule"), nb::arg("counted"));
}

void bind_engine_options(nb::module_& module) {
  nb::class_<ParameterGroup>(module, "ParameterGroup")
      .def_ro("learning_rate_factor", &ParameterGroup::learning_rate_factor)
      .def_ro("beta1", &ParameterGroup::beta1)
      .def_ro("beta2", &ParameterGroup::beta2)
      .def_ro("epsilon", &ParameterGroup::epsilon)
      .def_ro("weight_decay", &ParameterGroup::weight_decay);
  nb::class_<EngineOptions>(module, "EngineOptions")
      .def_ro("stage", &EngineOptions::stage)
      .def_ro("accumulation", &EngineOptions::accumulation)
      .def_ro("clip", &EngineOptions::clip)
      .def_ro("seed", &EngineOptions::seed)
      .def_ro("groups", &EngineOptions::groups)
      .def_prop_ro("dtype", [](const EngineOptions& self) { return std::string(name_of(self.dtype)); });
}

}  // namespace

void bind_config(nb::module_& module) {
  bind_schedule(module);
  bind_engine_options(module);
  nb::class_<ResolvedOptions>(module, "ResolvedOptions")
      .def_ro("engine", &ResolvedOptions::engine)
      .def_ro("schedule", &ResolvedOptions::schedule)
      .def_ro("notes", &ResolvedOptions::notes)
      .def_ro("effective_config", &ResolvedOptions::effective_config)
      .def_ro("launch", &ResolvedOptions::launch)
      .def_prop_ro("device", [](const ResolvedOptions& self) {
        return self.device == DeviceKind::cuda ? "cuda" : "cpu";
      });
  nb::class_<ConfigDraft>(module, "ConfigDraft")
      .def(nb::init<>())
      .def("read_file", &ConfigDraft::read_file, nb::arg("path"))
      .def("read_text", &ConfigDraft::read_text, nb::arg("json"), nb::arg("origin"))
      .def("resolve_for", &ConfigDraft::resolve_for, nb::arg("units"), nb::arg("launch"));
}

}  // namespace headrace::python
