// What the operating system tells of a drive and of the bytes that came from it. No root needed; what cannot
// be read is empty.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "headrace/bytes.h"

namespace headrace {

struct DriveFacts {
  std::string file_system;          // "ext4"
  std::string drive;                // model, or the device's name; "" for what is not on one block device
  std::optional<double> link_rate;  // GB/s of its PCIe link
};
DriveFacts drive_facts(int fd);
// "16.0 GT/s PCIe" and "4": GB/s after the line code of that generation. None where it is no such text.
std::optional<double> pcie_rate(const std::string& speed, const std::string& width);

// Bytes that the kernel fetched from storage for this process, by its own count (/proc/self/io).
std::optional<Bytes> bytes_read_from_storage();

// User and system time of all threads of this process, and of the calling thread.
double process_cpu_seconds();
double thread_cpu_seconds();

// GB/s that all CPUs copy between the halves of `memory`, which is overwritten.
double memory_copy_rate(std::span<std::byte> memory);

}  // namespace headrace
