// On which kind of storage a file lies, as far as it matters for a path past host memory: drivers
// know the kinds one by one.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::host {

enum class storage_kind : std::uint8_t { other, nvme, scsi, nfs, lustre, gpfs };

struct storage_facts {
    storage_kind kind = storage_kind::other;
    std::string words;  // for people: "ext4 on nvme0n1p2", "overlayfs"
};

// Of an open file. Never fails: what cannot be told is `other`. Reads /sys for ext4 and xfs: an
// array or a mapping of disks counts as their kind if all of them have the same.
storage_facts storage_of(int fd);

// The same of a block device, by the folder that stands for /sys/dev/block; tests have their own.
storage_kind kind_of_block_device(const std::string& devices, const std::string& number);

// Has the kernel a part of its own for reads from storage to a GPU: the module nvidia-fs, or memory
// of a GPU for transfers between devices (p2pmem)? `system` is the folder /sys; tests have theirs.
bool kernel_reaches_gpus(const std::string& system = "/sys");

}  // namespace penstock::host
