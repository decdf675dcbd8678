// For which GPUs a build has code: machine code, or intermediate code (PTX), which the driver
// translates when a program first needs it. The driver keeps the result for later starts.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::host {

enum class gpu_code { unknown, machine, intermediate, none };

// An entry of CMAKE_CUDA_ARCHITECTURES that names one architecture, such as 90, 75-virtual or
// 90a-real.
struct gpu_architecture {
    int capability = 0;  // ten times the major number and the minor one
    char suffix = 0;     // a: for this GPU alone; f: for its family
    bool has_machine_code = false, has_intermediate_code = false;

    static std::optional<gpu_architecture> of(std::string_view entry) {
        gpu_architecture out;
        const char* const end = entry.data() + entry.size();
        const auto [rest, code] = std::from_chars(entry.data(), end, out.capability);
        if (code != std::errc()) return std::nullopt;
        std::string_view kind(rest, static_cast<std::size_t>(end - rest));
        if (kind.starts_with('a') || kind.starts_with('f')) {
            out.suffix = kind.front();
            kind.remove_prefix(1);
        }
        if (!kind.empty() && kind != "-real" && kind != "-virtual") return std::nullopt;
        out.has_machine_code = kind != "-virtual";
        out.has_intermediate_code = kind != "-real";
        return out;
    }

    // Machine code runs on GPUs of its major number, from its minor number on; intermediate code on
    // all from it on.
    [[nodiscard]] bool runs_on(int gpu) const {
        return has_machine_code && gpu / 10 == capability / 10 &&
               (suffix == 'a' ? gpu == capability : gpu >= capability);
    }
    [[nodiscard]] bool is_translated_for(int gpu) const {
        if (!has_intermediate_code || gpu < capability) return false;
        return suffix == 0 || (suffix == 'f' ? gpu / 10 == capability / 10 : gpu == capability);
    }
};

// What a build for `architectures`, entries with commas between them, has for a GPU of that
// capability. Unknown: the list does not name architectures (native, all, OFF), or is not known.
inline gpu_code code_for(std::string_view architectures, int gpu) {
    gpu_code out = gpu_code::none;
    while (!architectures.empty()) {
        const std::size_t comma = architectures.find(',');
        const auto entry = gpu_architecture::of(architectures.substr(0, comma));
        if (!entry) return gpu_code::unknown;
        if (entry->runs_on(gpu)) return gpu_code::machine;
        if (entry->is_translated_for(gpu)) out = gpu_code::intermediate;
        if (comma == std::string_view::npos) return out;
        architectures.remove_prefix(comma + 1);
    }
    return gpu_code::unknown;
}

inline std::string capability_text(int gpu) {
    return std::to_string(gpu / 10) + "." + std::to_string(gpu % 10);
}

}  // namespace penstock::host
