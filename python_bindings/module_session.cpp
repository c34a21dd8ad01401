#include "headrace/module_session.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>

#include "python_bindings/bind.h"

namespace headrace::python {
namespace {

using NoGil = nb::call_guard<nb::gil_scoped_release>;
using Values = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
// Fills `out` with the elements of a parameter from `first` on.
using Source = std::function<void(const std::string& name, std::uint64_t first, Values out)>;

std::uintptr_t address(const std::byte* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

void initialise(ModuleSession& session, const std::optional<Source>& source) {
  Engine::ValueSource values;
  if (source)
    values = [&source](const ParameterSpec& parameter, std::uint64_t first, std::span<float> out) {
      const nb::gil_scoped_acquire gil;
      const std::size_t shape[] = {out.size()};
      (*source)(parameter.name, first, Values(out.data(), 1, shape, nb::none()));
    };
  const nb::gil_scoped_release no_gil;
  session.initialise(values);
}

StepResult step(ModuleSession& session, const std::vector<double>& learning_rates) {
  return session.step(learning_rates);
}

}  // namespace

void bind_module_session(nb::module_& module) {
  nb::class_<ModuleSession>(module, "ModuleSession")
      .def(nb::init<const ConfigDraft&, std::vector<UnitSpec>, const LaunchInfo&>(), nb::arg("draft"),
           nb::arg("units"), nb::arg("launch"), NoGil())
      .def("initialise", &initialise, nb::arg("values").none())
      .def("layout", [](ModuleSession& self, UnitId unit) { return self.engine().layout(unit); })
      .def(
          "begin_micro_batch", [](ModuleSession& self) { self.engine().begin_micro_batch(); }, NoGil())
      .def(
          "acquire", [](ModuleSession& self, UnitId unit) { return address(self.engine().acquire(unit)); },
          NoGil())
      .def(
          "release", [](ModuleSession& self, UnitId unit) { self.engine().release(unit); }, NoGil())
      .def(
          "gradient_buffer",
          [](ModuleSession& self, UnitId unit) { return address(self.engine().gradient_buffer(unit)); },
          NoGil())
      .def(
          "gradients_ready", [](ModuleSession& self, UnitId unit) { self.engine().gradients_ready(unit); },
          NoGil())
      .def("wait_for_compute", &ModuleSession::wait_for_compute, NoGil())
      .def("step", &step, nb::arg("learning_rates"), NoGil())
      .def("steps_applied", [](ModuleSession& self) { return self.engine().steps_applied(); })
      .def("state_hash", &ModuleSession::state_hash, NoGil())
      .def_prop_ro("state", &ModuleSession::state, nb::rv_policy::reference_internal)
      .def_prop_ro("options", &ModuleSession::options, nb::rv_policy::reference_internal)
      .def_prop_ro("plan", &ModuleSession::plan, nb::rv_policy::reference_internal);
}

}  // namespace headrace::python
