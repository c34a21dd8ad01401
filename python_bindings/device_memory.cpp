// dtype.h: elements of the engine's memory as an array that other libraries share through DLPack.
#include <nanobind/ndarray.h>

#include "headrace/dtype.h"
#include "headrace/errors.h"
#include "python_bindings/bind.h"

namespace headrace::python {
namespace {

nb::dlpack::dtype dlpack_dtype(const std::string& name) {
  using Code = nb::dlpack::dtype_code;
  const auto dtype = [](Code code, std::uint8_t bits) {
    return nb::dlpack::dtype{static_cast<std::uint8_t>(code), bits, 1};
  };
  if (name == "bytes") return dtype(Code::UInt, 8);
  if (name == name_of(DType::f32)) return dtype(Code::Float, 32);
  if (name == name_of(DType::bf16)) return dtype(Code::Bfloat, 16);
  if (name == name_of(DType::f16)) return dtype(Code::Float, 16);
  throw UsageError(fmt::format("{} is no type of parameters.", name));
}

// The memory is the owner's, which lives as long as the array.
nb::ndarray<> memory_view(std::uintptr_t address, std::size_t numel, const std::string& dtype,
                          nb::object owner, bool on_cuda, int device) {
  const std::size_t shape[] = {numel};
  return nb::ndarray<>(reinterpret_cast<void*>(address), 1, shape, owner, nullptr, dlpack_dtype(dtype),
                       on_cuda ? nb::device::cuda::value : nb::device::cpu::value, device);
}

}  // namespace

void bind_device_memory(nb::module_& module) {
  module.def("memory_view", &memory_view, nb::arg("address"), nb::arg("numel"), nb::arg("dtype"),
             nb::arg("owner"), nb::arg("on_cuda") = false, nb::arg("device") = 0);
}

}  // namespace headrace::python
