// The buffer of a mount: what is asked of it, checked, and its memory.
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <thread>

#include "buffer/pool/device_frames.hpp"
#include "mount/mount.hpp"
#include "penstock/options.hpp"

namespace penstock::mount {

namespace {

constexpr std::uint32_t least_page_bytes = 4096,
                        most_page_bytes = 1u << 20;  // what is read past the page cache is cut so
constexpr std::uint64_t least_pages = 2, most_pages = std::uint64_t{1} << 30;
constexpr std::uint64_t most_files = 16'384, least_files = 16;

// Each file that has pages in the buffer has a descriptor.
std::uint64_t spare_descriptors() {
    rlimit limit{};
    return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 4 : least_files;
}

status check_size(const char* flag, std::uint64_t bytes, std::uint32_t page_bytes) {
    const std::string told = std::string(flag) + ": " + format_size(bytes);
    if (bytes / page_bytes < least_pages)
        return {-EINVAL, told + " is less than two pages of " + format_size(page_bytes) +
                             "; give at least " + format_size(least_pages * page_bytes)};
    if (bytes / page_bytes > most_pages)
        return {-EINVAL, told + " is more than " + std::to_string(most_pages) +
                             " pages; give less, or larger pages with --page"};
    return {};
}

}  // namespace

unsigned serving_threads(std::optional<std::uint32_t> wanted) {
    return wanted.value_or(std::max(4u, std::thread::hardware_concurrency()));
}

buffer::manager_settings settings_of(const buffer_options& wanted, unsigned threads) {
    const bool alone = wanted.policy == buffer::policy_kind::native;
    const auto host_pages = static_cast<std::uint32_t>(wanted.ram_bytes / wanted.page_bytes),
               device_pages =
                   alone ? 0 : static_cast<std::uint32_t>(wanted.gpu_bytes / wanted.page_bytes);
    const std::uint64_t files = std::max(
        std::min({most_files, std::uint64_t{host_pages} + device_pages, spare_descriptors()}),
        least_files);
    return {.page_bytes = wanted.page_bytes,
            .host_pages = host_pages,
            .device_pages = device_pages,
            .sessions = threads,
            .fixed_pages = 1,
            .files = static_cast<std::uint32_t>(files),
            .policy = wanted.policy,
            .stands_back = wanted.stands_back};
}

status check(const buffer_options& wanted, unsigned threads) {
    if (wanted.page_bytes < least_page_bytes || wanted.page_bytes > most_page_bytes ||
        !std::has_single_bit(wanted.page_bytes))
        return {-EINVAL, "--page: " + format_size(wanted.page_bytes) +
                             " is no page of a buffer; give a power of two from " +
                             format_size(least_page_bytes) + " to " + format_size(most_page_bytes)};
    if (status s = check_size("--ram", wanted.ram_bytes, wanted.page_bytes); !s) return s;
    if (wanted.policy != buffer::policy_kind::native)
        if (status s = check_size("--gpu", wanted.gpu_bytes, wanted.page_bytes); !s) return s;
    // Each thread uses a page and needs a frame for the next, and one more must be left to go.
    const std::uint64_t needed = (2 * std::uint64_t{threads} + 1) * wanted.page_bytes;
    if (wanted.ram_bytes < needed)
        return {-EINVAL, "--ram: " + format_size(wanted.ram_bytes) + " is too little for " +
                             std::to_string(threads) + " threads; give at least " +
                             format_size(needed) + ", or fewer --threads"};
    if (const std::uint64_t there = buffer::memory_of_machine(); wanted.ram_bytes > there)
        return {-ENOMEM, "--ram: " + format_size(wanted.ram_bytes) +
                             " is more than this machine's memory, " + format_size(there) +
                             "; give less"};
    return {};
}

status make_frames(const buffer_options& wanted, const buffer::frames_shape& shape,
                   std::unique_ptr<buffer::device_frames>& out, bool& on_gpu) {
    const status made = buffer::choose_frames(wanted.where, 0, shape, out, on_gpu);
    if (made.ok()) return {};
    return {made.code, made.message + (made.code == -ENODEV ? "; give --backend cpu"
                                                            : "; give less with --ram or --gpu")};
}

}  // namespace penstock::mount
