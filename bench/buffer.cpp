// The buffer manager: pages that are in the host fixed by one thread and by all, against looking at
// plain memory; and pages that are found in the device, against the file in the page cache.
#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <vector>

#include "buffer/pool/manager.hpp"
#include "cases.hpp"
#include "common/threads.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::bench {

namespace {

using buffer::use_kind;

constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint32_t fixed_pages = 1;

// As the file has it (scratch_file.hpp).
std::uint64_t first_word(std::uint64_t page) { return mix64(page * (page_bytes / 8)); }

// Millions a second: `looks` at random pages by each thread; work(page_of, errors) does those of
// one. page_of(i) is the thread's i-th page of [0, pages).
template <typename Work>
double looks_a_second(std::uint64_t pages, std::uint64_t threads, std::uint64_t looks,
                      const Work& work) {
    apps::first_error errors;
    const stopwatch watch;
    apps::on_threads(static_cast<std::uint32_t>(threads), [&](std::uint32_t t) {
        work([=](std::uint64_t i) { return mix64(i * threads + t + 1) % pages; }, errors);
    });
    const double seconds = watch.seconds();
    require(errors.get());
    return 1e-6 * static_cast<double>(threads * looks) / seconds;
}

// Each page by one fix and one unfix and a look at its number.
double fix_pages(buffer::manager& all, std::uint64_t pages, std::uint64_t threads,
                 std::uint64_t looks) {
    return looks_a_second(pages, threads, looks, [&](const auto& page_of, auto& errors) {
        const auto session = all.open_session();
        for (std::uint64_t i = 0; i < looks && !errors.stop(); ++i) {
            const std::uint64_t page = page_of(i);
            buffer::fixed_page fixed;
            if (const int code = session->fix({page, 0}, use_kind::read, fixed); code != 0)
                return errors.note({code, "a page could not be fixed: " + error_text(code)});
            const auto seen = *reinterpret_cast<const std::uint64_t*>(fixed.data);
            session->unfix(fixed, false);
            if (seen != first_word(page)) errors.note({-EIO, "a page that was fixed is another"});
        }
    });
}

// The same of plain memory.
double look_at_pages(const std::vector<std::uint64_t>& words, std::uint64_t pages,
                     std::uint64_t threads, std::uint64_t looks) {
    return looks_a_second(pages, threads, looks, [&](const auto& page_of, auto& errors) {
        for (std::uint64_t i = 0; i < looks; ++i) {
            const std::uint64_t page = page_of(i);
            if (words[page * page_bytes / 8] != first_word(page))
                errors.note({-EIO, "plain memory is wrong"});
        }
    });
}

double read_pages(int fd, std::uint64_t pages, std::uint64_t threads, std::uint64_t looks) {
    return looks_a_second(pages, threads, looks, [&](const auto& page_of, auto& errors) {
        std::vector<std::uint64_t> page_room(page_bytes / 8);
        for (std::uint64_t i = 0; i < looks && !errors.stop(); ++i) {
            const std::uint64_t page = page_of(i);
            if (apps::read_all(fd, page_room.data(), page_bytes, page * page_bytes) != 0 ||
                page_room[0] != first_word(page))
                errors.note({-EIO, "pread gave another page"});
        }
    });
}

struct filled_buffer {
    apps::unique_fd fd;
    std::unique_ptr<buffer::device_frames> frames;
    std::unique_ptr<buffer::manager> all;  // goes before what it uses

    filled_buffer(context& here, std::uint64_t pages, std::uint32_t host_pages,
                  std::uint32_t device_pages, std::uint64_t threads)
        : fd(here.file().open(O_RDONLY)) {
        const buffer::manager_settings wanted{.page_bytes = page_bytes,
                                              .host_pages = host_pages,
                                              .device_pages = device_pages,
                                              .sessions = static_cast<std::uint32_t>(threads),
                                              .fixed_pages = fixed_pages};
        std::string why;
        frames = here.on_gpu() ? buffer::make_gpu_frames(0, buffer::frames_for(wanted), why)
                               : buffer::make_cpu_frames(buffer::frames_for(wanted), why);
        if (frames == nullptr) throw failure(-ENOMEM, "buffer: " + why + "; give a smaller --file");
        require(buffer::manager::make(wanted, *frames, host::linux_environment(), all));
        require(all->add_file(fd, pages * page_bytes), here.file().path());
        const auto session = all->open_session();
        for (std::uint64_t page = 0; page < pages; ++page) {
            buffer::fixed_page fixed;
            require(session->fix({page, 0}, use_kind::read, fixed), "filling the buffer");
            session->unfix(fixed, false);
        }
    }
};

void measure_threads(context& here, std::uint64_t pages, std::uint32_t host_pages,
                     std::uint64_t threads) {
    const filled_buffer near(here, host_pages, host_pages, 0, threads);
    const filled_buffer far(here, pages, host_pages, static_cast<std::uint32_t>(pages), threads);
    const std::uint64_t looks = std::max<std::uint64_t>(pages, 1u << 14) * 4 / threads;
    std::vector<std::uint64_t> plain(host_pages * page_bytes / 8);
    for (std::uint64_t page = 0; page < host_pages; ++page)
        plain[page * page_bytes / 8] = first_word(page);
    const std::string by = ", " + counted(threads, "thread");
    measured in_host, in_device;
    here.progress("buffer" + by);
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        in_host.ours.add(fix_pages(*near.all, host_pages, threads, looks));
        in_host.baseline.add(look_at_pages(plain, host_pages, threads, looks));
        in_device.ours.add(fix_pages(*far.all, pages, threads, looks / 4));
        in_device.baseline.add(read_pages(far.fd, pages, threads, looks / 4));
    }
    const buffer::manager_counts counts = far.all->counts();
    const double share = static_cast<double>(counts.device_hits) /
                         static_cast<double>(counts.device_hits + counts.host_hits + counts.misses);
    here.add({"6", "pages in the host, fixed and unfixed" + by, page_bytes, "million/s", in_host,
              "a look at plain memory"});
    here.add({"S14", "pages of which the host has a 16th, the device the others" + by, page_bytes,
              "million/s", in_device, "pread from the page cache",
              std::to_string(static_cast<int>(100 * share)) +
                  " % found in the device, filling included"});
}

}  // namespace

void buffer_path(context& here) {
    const std::uint64_t pages = here.file_bytes(gib, 64 * mib) / page_bytes,
                        most = here.host_threads();
    here.use_file(pages * page_bytes);
    const auto host_pages = static_cast<std::uint32_t>(
        std::max<std::uint64_t>(pages / 16, most * (fixed_pages + 1) + 1));
    measure_threads(here, pages, host_pages, 1);
    if (most > 1) measure_threads(here, pages, host_pages, most);
}

}  // namespace penstock::bench
