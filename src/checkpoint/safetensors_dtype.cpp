#include <algorithm>

#include "src/checkpoint/safetensors.h"

namespace headrace {
namespace {

constexpr SafetensorsDType dtypes[] = {
    {"F32", 32},        {"BF16", 16},   {"F16", 16},    {"F64", 64},    {"I64", 64},    {"I32", 32},
    {"I16", 16},        {"I8", 8},      {"U64", 64},    {"U32", 32},    {"U16", 16},    {"U8", 8},
    {"BOOL", 8},        {"C64", 64},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}};

}  // namespace

std::optional<SafetensorsDType> find_safetensors_dtype(std::string_view name) {
  const auto* found = std::ranges::find(dtypes, name, &SafetensorsDType::name);
  return found == std::end(dtypes) ? std::nullopt : std::optional(*found);
}

SafetensorsDType safetensors_dtype(DType dtype) {
  return dtypes[static_cast<std::size_t>(dtype)];  // the first three, in the order of DType
}

std::optional<DType> native_dtype(SafetensorsDType dtype) {
  for (const DType native : {DType::f32, DType::bf16, DType::f16})
    if (safetensors_dtype(native) == dtype) return native;
  return std::nullopt;
}

}  // namespace headrace
