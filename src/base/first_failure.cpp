#include "headrace/first_failure.h"

#include "headrace/errors.h"

namespace headrace {
namespace {

std::exception_ptr located(const std::exception_ptr& error, std::string_view where) {
  const auto text = [&](const std::exception& e) { return fmt::format("{} ({})", e.what(), where); };
  try {
    std::rethrow_exception(error);
  } catch (const IoError&) {
    return error;  // names its file and place itself
  } catch (const UsageError& e) {
    return std::make_exception_ptr(UsageError(text(e)));
  } catch (const DoesNotFit& e) {
    return std::make_exception_ptr(DoesNotFit(text(e)));
  } catch (const CorruptData& e) {
    return std::make_exception_ptr(CorruptData(text(e)));
  } catch (const std::exception& e) {
    return std::make_exception_ptr(Error(text(e)));
  } catch (...) {
    return std::make_exception_ptr(Error(fmt::format("an unknown error ({})", where)));
  }
}

}  // namespace

void FirstFailure::set(std::string_view where, const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (failed_.load()) return;
  error_ = located(error, where);
  failed_.store(true, std::memory_order_release);
}

void FirstFailure::rethrow_if_failed() const {
  if (!failed()) return;
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(error_);
}

}  // namespace headrace
