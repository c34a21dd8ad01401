#include "headrace/locality.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

// Two nodes of two cores; node 1 has a device and a drive, node 0 another drive.
constexpr const char* two_nodes = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" allowed_cpuset="0x0000000f" nodeset="0x00000003" complete_nodeset="0x00000003" allowed_nodeset="0x00000003" gp_index="1">
    <object type="Package" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2">
      <object type="NUMANode" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3" local_memory="1073741824"/>
      <object type="Core" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4">
        <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="5"/>
      </object>
      <object type="Core" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="6">
        <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="7"/>
      </object>
      <object type="Bridge" gp_index="20" bridge_type="0-1" depth="0" bridge_pci="0000:[00-0f]">
        <object type="PCIDev" gp_index="21" pci_busid="0000:01:00.0" pci_type="0108 [8086:0953] [8086:370d] 01" pci_link_speed="4.000000">
          <object type="OSDev" gp_index="22" name="nvme1n1" subtype="Disk" osdev_type="0"/>
        </object>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="8">
      <object type="NUMANode" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="9" local_memory="1073741824"/>
      <object type="Core" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="10">
        <object type="PU" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="11"/>
      </object>
      <object type="Core" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="12">
        <object type="PU" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="13"/>
      </object>
      <object type="Bridge" gp_index="30" bridge_type="0-1" depth="0" bridge_pci="0000:[3a-3f]">
        <object type="PCIDev" gp_index="31" pci_busid="0000:3b:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="63.000000"/>
        <object type="PCIDev" gp_index="32" pci_busid="0000:3c:00.0" pci_type="0108 [8086:0953] [8086:370d] 01" pci_link_speed="4.000000">
          <object type="OSDev" gp_index="33" name="nvme0n1" subtype="Disk" osdev_type="0"/>
        </object>
      </object>
    </object>
  </object>
</topology>)";

TEST(Locality, a_device_is_near_the_cores_and_drives_of_its_node) {
  const Locality locality = locality_of_pci("0000:3b:00.0", two_nodes);
  EXPECT_EQ(locality.numa_node, 1);
  EXPECT_EQ(locality.cpus, "2-3");
  EXPECT_EQ(locality.nvme, std::vector<std::string>{"nvme0n1"});
  EXPECT_EQ(describe(locality), "NUMA node 1 (cores 2-3, nvme0n1)");
}

TEST(Locality, an_unknown_device_or_a_broken_topology_is_near_nothing) {
  EXPECT_EQ(describe(locality_of_pci("0000:77:00.0", two_nodes)), "");
  EXPECT_EQ(describe(locality_of_pci("0000:3b:00.0", "<topology>")), "");
  EXPECT_EQ(locality_of_pci("no bus id").numa_node, -1);
}

TEST(Locality, of_this_machine_can_be_asked) {
  EXPECT_NO_THROW(locality_of_pci("0000:00:00.0"));
}

TEST(NumaNodes, have_their_cores_and_memory) {
  const std::vector<NumaNode> nodes = numa_nodes(two_nodes);
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].cpus, "0-1");
  EXPECT_EQ(nodes[1].index, 1);
  EXPECT_EQ(nodes[1].cpus, "2-3");
  EXPECT_EQ(nodes[1].memory_bytes, Bytes{1} << 30);
}

}  // namespace
}  // namespace headrace
