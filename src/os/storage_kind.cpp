#include "os/storage_kind.hpp"

#include <filesystem>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "os/file_system.hpp"

namespace penstock::host {

namespace {

constexpr int most_layers = 4;  // arrays of mappings of partitions

// A partition lies in the folder of its disk, and a disk in that of its controller.
storage_kind kind_of_folder(const std::filesystem::path& folder, int layers) {
    namespace fs = std::filesystem;
    std::error_code failed;
    std::optional<storage_kind> common;
    for (fs::directory_iterator part(folder / "slaves", failed), end; !failed && part != end;
         part.increment(failed)) {
        const fs::path real = fs::canonical(part->path(), failed);
        if (failed || layers == 0) return storage_kind::other;
        const storage_kind kind = kind_of_folder(real, layers - 1);
        if (common && *common != kind) return storage_kind::other;
        common = kind;
    }
    if (common) return *common;
    for (const fs::path& name : folder) {
        const std::string& text = name.native();
        if (text.rfind("nvme", 0) == 0) return storage_kind::nvme;
        if (text.rfind("sd", 0) == 0 && text.size() > 2) return storage_kind::scsi;
    }
    return storage_kind::other;
}

std::filesystem::path folder_of(const std::string& devices, const std::string& number) {
    std::error_code failed;
    const std::filesystem::path real =
        std::filesystem::canonical(std::filesystem::path(devices) / number, failed);
    return failed ? std::filesystem::path() : real;
}

}  // namespace

storage_kind kind_of_block_device(const std::string& devices, const std::string& number) {
    const std::filesystem::path folder = folder_of(devices, number);
    return folder.empty() ? storage_kind::other : kind_of_folder(folder, most_layers);
}

storage_facts storage_of(int fd) try {
    const std::string_view name = file_system_of(fd).name;
    storage_facts out{storage_kind::other, std::string(name)};
    if (name == "NFS") out.kind = storage_kind::nfs;
    if (name == "Lustre") out.kind = storage_kind::lustre;
    if (name == "GPFS") out.kind = storage_kind::gpfs;
    struct stat facts {};
    if ((name != "ext4" && name != "xfs") || ::fstat(fd, &facts) != 0) return out;
    constexpr const char* devices = "/sys/dev/block";
    const std::string number =
        std::to_string(major(facts.st_dev)) + ":" + std::to_string(minor(facts.st_dev));
    out.kind = kind_of_block_device(devices, number);
    const std::string disk = folder_of(devices, number).filename().native();
    if (!disk.empty()) out.words += " on " + disk;
    return out;
} catch (...) {
    return {};
}

bool kernel_reaches_gpus(const std::string& system) {
    namespace fs = std::filesystem;
    std::error_code failed;
    if (fs::exists(system + "/module/nvidia_fs", failed)) return true;
    for (fs::directory_iterator gpu(system + "/bus/pci/drivers/nvidia", failed), end;
         !failed && gpu != end; gpu.increment(failed))
        if (fs::exists(gpu->path() / "p2pmem", failed)) return true;
    return false;
}

}  // namespace penstock::host
