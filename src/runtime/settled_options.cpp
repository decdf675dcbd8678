// What the options come to on a device: every automatic value, and whether device and host have
// room for them.
#include <algorithm>
#include <cerrno>
#include <thread>
#include <unistd.h>

#include "runtime/runtime_state.hpp"
#include "settings/tables.hpp"

namespace penstock::host {

namespace {

std::uint64_t half_of_memory() {
    return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
           static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE)) / 2;
}

}  // namespace

// Frames in memory of the caller take none of what is free.
status runtime_state::check_memory() const {
    const std::uint64_t free_bytes = device->free_bytes(), cache_bytes = *settings.cache_bytes,
                        table_bytes = settings.table_bytes;
    if (settings.cache_memory == nullptr) {
        if (cache_bytes < free_bytes && table_bytes < free_bytes - cache_bytes) return {};
        return {-EINVAL, "cache_bytes: " + format_size(cache_bytes) + " and table_bytes: " +
                             format_size(table_bytes) + " do not fit into the " +
                             format_size(free_bytes) + " of " + device->name() + "; give less"};
    }
    std::string why;
    if (!device->may_hold_frames(settings.cache_memory, cache_bytes, why))
        return {-EINVAL,
                "cache_memory: " + settings::shown_address(settings.cache_memory) + " " + why};
    if (table_bytes < free_bytes) return {};
    return {-EINVAL, "table_bytes: " + format_size(table_bytes) + " do not fit into the " +
                         format_size(free_bytes) + " of " + device->name() + "; give less"};
}

// A number of threads that the caller gave is exact. Helpers wait for disks, as a rule, so there
// may be more of them than processors.
void runtime_state::settle_threads(unsigned processors) {
    const bool is_exact = settings.service_threads.has_value();
    const std::uint32_t most = is_exact ? 1 : std::clamp(processors, 4u, 16u);
    if (!is_exact)
        settings.service_threads = std::min(std::clamp(processors / 4, 1u, 4u),
                                            settings.most_service_threads.value_or(most));
    if (!settings.most_service_threads)
        settings.most_service_threads = std::max(most, *settings.service_threads);
}

// Replaces every automatic value, and checks what depends on the device.
status runtime_state::settle_sizes() {
    constexpr std::uint64_t mib = 1u << 20, gib = 1u << 30;
    const unsigned processors = std::max(1u, std::thread::hardware_concurrency());
    const bool gpu = device->is_gpu();
    if (!settings.cache_bytes) {
        const std::uint64_t free_bytes = device->free_bytes();
        const std::uint64_t wanted = gpu ? free_bytes / 4 : std::min(free_bytes / 16, gib);
        settings.cache_bytes = std::clamp(wanted, 64 * settings.page_bytes,
                                          (engine::max_frames - 1) * settings.page_bytes);
    }
    if (const status s = check_memory(); !s) return s;
    const std::uint64_t cache_bytes = *settings.cache_bytes;
    if (cache_bytes / settings.page_bytes >= engine::max_frames)
        return {-EINVAL, "cache_bytes: " + format_size(cache_bytes) + " has more than " +
                             std::to_string(engine::max_frames) + " pages of " +
                             format_size(settings.page_bytes) +
                             "; use larger pages or a smaller cache"};
    settle_threads(processors);
    if (!settings.staging_bytes) settings.staging_bytes = gpu ? 128 * mib : 16 * mib;
    if (!settings.window_bytes) settings.window_bytes = half_of_memory();
    if (settings.tier_bytes != 0 && settings.tier_bytes < 8 * settings.page_bytes)
        return {-EINVAL, "tier_bytes: " + format_size(settings.tier_bytes) +
                             " is less than 8 pages of " + format_size(settings.page_bytes) +
                             "; give at least " + format_size(8 * settings.page_bytes) +
                             ", or 0 for none"};
    if (settings.tier_bytes > *settings.window_bytes / device_count)
        return {-EINVAL,
                "tier_bytes: " + format_size(settings.tier_bytes) +
                    (device_count > 1 ? " for each of " + std::to_string(device_count) + " devices"
                                      : "") +
                    " is more than window_bytes: " + format_size(*settings.window_bytes) +
                    ", which is for windows and tier together; give a larger window_bytes"};
    if (settings.tier_bytes / settings.page_bytes >= engine::max_frames)
        return {-EINVAL, "tier_bytes: " + format_size(settings.tier_bytes) + " has more than " +
                             std::to_string(engine::max_frames) + " pages of " +
                             format_size(settings.page_bytes) +
                             "; use larger pages or a smaller tier"};
    if (!settings.worker_threads) settings.worker_threads = std::min(processors, 1024u);
    if (settings.roots.empty()) settings.roots.push_back(".");
    return {};
}

}  // namespace penstock::host
