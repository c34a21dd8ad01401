#include "headrace/step_result.h"

#include "python_bindings/bind.h"

namespace headrace::python {

void bind_step_result(nb::module_& module) {
  nb::class_<StepResult>(module, "StepResult")
      .def_ro("step", &StepResult::step)
      .def_ro("gradient_norm", &StepResult::gradient_norm)
      .def_ro("clipped", &StepResult::clipped)
      .def_ro("skipped", &StepResult::skipped);
  nb::class_<LossScale>(module, "LossScale").def_ro("scale", &LossScale::scale);
  nb::class_<TrainingState>(module, "TrainingState")
      .def_rw("data_position", &TrainingState::data_position)
      .def_ro("iteration", &TrainingState::iteration)
      .def_ro("loss_scale", &TrainingState::loss_scale);
}

}  // namespace headrace::python
