#include "headrace/units.h"

#include "python_bindings/bind.h"

namespace headrace::python {

void bind_units(nb::module_& module) {
  nb::class_<ParameterSpec>(module, "ParameterSpec")
      .def(
          "__init__",
          [](ParameterSpec* self, std::string name, std::vector<std::int64_t> shape) {
            new (self) ParameterSpec{.name = std::move(name), .shape = std::move(shape)};
          },
          nb::arg("name"), nb::arg("shape"))
      .def_rw("name", &ParameterSpec::name)
      .def_rw("shape", &ParameterSpec::shape)
      .def_rw("weight_decay", &ParameterSpec::weight_decay)
      .def_rw("group", &ParameterSpec::group)
      .def("numel", &ParameterSpec::numel);
  nb::class_<UnitSpec>(module, "UnitSpec")
      .def(
          "__init__",
          [](UnitSpec* self, std::string name, std::vector<ParameterSpec> parameters) {
            new (self) UnitSpec{std::move(name), std::move(parameters)};
          },
          nb::arg("name"), nb::arg("parameters"))
      .def_ro("name", &UnitSpec::name)
      .def_ro("parameters", &UnitSpec::parameters);
  nb::class_<UnitLayout>(module, "UnitLayout")
      .def_ro("spec", &UnitLayout::spec)
      .def_ro("offsets", &UnitLayout::offsets)
      .def_ro("numel", &UnitLayout::numel)
      .def_ro("parameters_numel", &UnitLayout::parameters_numel);
}

}  // namespace headrace::python
