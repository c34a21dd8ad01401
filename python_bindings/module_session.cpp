#include "headrace/module_session.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "headrace/errors.h"
#include "headrace/exchange_communicator.h"
#include "python_bindings/bind.h"

namespace headrace::python {
namespace {

using NoGil = nb::call_guard<nb::gil_scoped_release>;
using Values = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
// Fills `out` with the elements of a parameter from `first` on.
using Source = std::function<void(const std::string& name, std::uint64_t first, Values out)>;
// (rank, address, bytes) of what goes to other ranks, and of what comes.
using Pieces = std::vector<std::tuple<int, std::uintptr_t, Bytes>>;
using PythonExchange =
    std::function<void(const Pieces& send, const Pieces& receive, const std::string& what)>;

std::uintptr_t address(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

// Lanes may wait for the interpreter's lock (an exchange of the caller's), so ending waits without it.
struct Session {
  std::unique_ptr<ModuleSession> inner;
  std::shared_ptr<PythonExchange> exchange;

  ~Session() { close(); }
  void close() {
    {
      const nb::gil_scoped_release no_gil;
      inner.reset();
    }
    exchange.reset();
  }
  ModuleSession& open() {
    if (inner == nullptr) throw UsageError("the engine has been closed.");
    return *inner;
  }
};

Pieces pieces_of(std::span<const Communicator::Piece> pieces, int rank) {
  Pieces result;
  for (int r = 0; r < static_cast<int>(pieces.size()); ++r)
    if (const Communicator::Piece& piece = pieces[static_cast<std::size_t>(r)]; r != rank && piece.bytes > 0)
      result.emplace_back(r, address(piece.data), piece.bytes);
  return result;
}

CommunicatorMaker maker_of(const std::shared_ptr<PythonExchange>& exchange, const LaunchInfo& launch) {
  if (exchange == nullptr) return {};
  return [exchange, launch](Device& device, const CommunicatorOptions& options) {
    const int rank = launch.rank;
    return make_exchange_communicator(
        device, options, rank, launch.size,
        [exchange, rank](std::span<const Communicator::Piece> send,
                         std::span<const Communicator::Piece> receive, const Operation& operation) {
          const nb::gil_scoped_acquire gil;
          try {
            (*exchange)(pieces_of(send, rank), pieces_of(receive, rank),
                        fmt::format("{} #{} of \"{}\"", operation.name, operation.sequence, operation.label));
          } catch (const nb::python_error& error) {  // may not leave this thread with the lock
            throw Error(
                fmt::format("{} of \"{}\" failed: {}", operation.name, operation.label, error.what()));
          }
        });
  };
}

void construct(Session* self, const ConfigDraft& draft, std::vector<UnitSpec> units, const LaunchInfo& launch,
               std::optional<PythonExchange> exchange) {
  auto shared = exchange ? std::make_shared<PythonExchange>(std::move(*exchange)) : nullptr;
  std::unique_ptr<ModuleSession> inner;
  {
    const nb::gil_scoped_release no_gil;
    inner = std::make_unique<ModuleSession>(draft, std::move(units), launch, maker_of(shared, launch));
  }
  new (self) Session{std::move(inner), std::move(shared)};
}

void initialise(Session& session, const std::optional<Source>& source) {
  Engine::ValueSource values;
  if (source)
    values = [&source](const ParameterSpec& parameter, std::uint64_t first, std::span<float> out) {
      const nb::gil_scoped_acquire gil;
      const std::size_t shape[] = {out.size()};
      (*source)(parameter.name, first, Values(out.data(), 1, shape, nb::none()));
    };
  const nb::gil_scoped_release no_gil;
  session.open().initialise(values);
}

std::uintptr_t acquire(Session& self, UnitId unit) {
  return address(self.open().engine().acquire(unit));
}
std::uintptr_t gradient_buffer(Session& self, UnitId unit) {
  return address(self.open().engine().gradient_buffer(unit));
}
StepResult step(Session& self, const std::vector<double>& learning_rates) {
  return self.open().step(learning_rates);
}

void bind_queries(nb::class_<Session>& session) {
  session.def("layout", [](Session& self, UnitId unit) { return self.open().engine().layout(unit); })
      .def("steps_applied", [](Session& self) { return self.open().engine().steps_applied(); })
      .def(
          "state_hash", [](Session& self) { return self.open().state_hash(); }, NoGil())
      .def_prop_ro("state", [](Session& self) { return self.open().state(); })
      .def_prop_ro("options", [](Session& self) { return self.open().options(); })
      .def_prop_ro("plan", [](Session& self) { return self.open().plan(); });
}

}  // namespace

void bind_module_session(nb::module_& module) {
  nb::class_<Session> session(module, "ModuleSession");
  session
      .def("__init__", &construct, nb::arg("draft"), nb::arg("units"), nb::arg("launch"),
           nb::arg("exchange").none() = nb::none())
      .def("close", &Session::close)
      .def("initialise", &initialise, nb::arg("values").none())
      .def(
          "begin_micro_batch", [](Session& self) { self.open().engine().begin_micro_batch(); }, NoGil())
      .def("acquire", &acquire, nb::arg("unit"), NoGil())
      .def(
          "release", [](Session& self, UnitId unit) { self.open().engine().release(unit); }, NoGil())
      .def("gradient_buffer", &gradient_buffer, nb::arg("unit"), NoGil())
      .def(
          "gradients_ready", [](Session& self, UnitId unit) { self.open().engine().gradients_ready(unit); },
          NoGil())
      .def(
          "wait_for_compute", [](Session& self) { self.open().wait_for_compute(); }, NoGil())
      .def("step", &step, nb::arg("learning_rates"), NoGil());
  bind_queries(session);
}

}  // namespace headrace::python
