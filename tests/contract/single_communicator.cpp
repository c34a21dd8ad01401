#include "contract/communicator_under_test.h"

std::unique_ptr<headrace::Communicator> headrace::communicator_under_test(Device& device) {
  return make_single_communicator(device);
}
