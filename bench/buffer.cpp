// The buffer manager: pages that are in the host fixed by one thread and by all, against looking at
// plain memory; and pages that are found in the device, against the file in the page cache.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
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

// Random pages of [0, pages), each by one fix and one unfix and a look at its number. Millions a
// second, by all threads together.
status fix_pages(buffer::manager& all, std::uint64_t pages, std::uint64_t threads,
                 std::uint64_t looks, double& out) {
    apps::first_error errors;
    const stopwatch watch;
    apps::on_threads(static_cast<std::uint32_t>(threads), [&](std::uint32_t t) {
        const auto session = all.open_session();
        for (std::uint64_t i = 0; i < looks && !errors.stop(); ++i) {
            const std::uint64_t page = mix64(i * threads + t + 1) % pages;
            buffer::fixed_page fixed;
            if (const int code = session->fix({page, 0}, use_kind::read, fixed); code != 0)
                return errors.note({code, "a page could not be fixed: " + error_text(code)});
            const auto seen = *reinterpret_cast<const std::uint64_t*>(fixed.data);
            session->unfix(fixed, false);
            if (seen != first_word(page)) errors.note({-EIO, "a page that was fixed is another"});
        }
    });
    out = 1e-6 * static_cast<double>(threads * looks) / watch.seconds();
    return errors.get();
}

// The same of plain memory.
status look_at_pages(const std::vector<std::uint64_t>& words, std::uint64_t pages,
                     std::uint64_t threads, std::uint64_t looks, double& out) {
    apps::first_error errors;
    const stopwatch watch;
    apps::on_threads(static_cast<std::uint32_t>(threads), [&](std::uint32_t t) {
        for (std::uint64_t i = 0; i < looks; ++i) {
            const std::uint64_t page = mix64(i * threads + t + 1) % pages;
            if (words[page * page_bytes / 8] != first_word(page))
                errors.note({-EIO, "plain memory is wrong"});
        }
    });
    out = 1e-6 * static_cast<double>(threads * looks) / watch.seconds();
    return errors.get();
}

status read_pages(int fd, std::uint64_t pages, std::uint64_t threads, std::uint64_t looks,
                  double& out) {
    apps::first_error errors;
    const stopwatch watch;
    apps::on_threads(static_cast<std::uint32_t>(threads), [&](std::uint32_t t) {
        std::vector<std::uint64_t> page_room(page_bytes / 8);
        for (std::uint64_t i = 0; i < looks && !errors.stop(); ++i) {
            const std::uint64_t page = mix64(i * threads + t + 1) % pages;
            if (::pread(fd, page_room.data(), page_bytes, static_cast<off_t>(page * page_bytes)) !=
                    static_cast<ssize_t>(page_bytes) ||
                page_room[0] != first_word(page))
                errors.note({-EIO, "pread gave another page"});
        }
    });
    out = 1e-6 * static_cast<double>(threads * looks) / watch.seconds();
    return errors.get();
}

struct filled_buffer {
    int fd = -1;
    std::unique_ptr<buffer::device_frames> frames;
    std::unique_ptr<buffer::manager> all;

    ~filled_buffer() {
        all.reset();
        if (fd >= 0) ::close(fd);
    }
    status make(context& here, std::uint64_t pages, std::uint32_t host_pages,
                std::uint32_t device_pages, std::uint64_t threads) {
        const buffer::manager_settings wanted{.page_bytes = page_bytes,
                                              .host_pages = host_pages,
                                              .device_pages = device_pages,
                                              .sessions = static_cast<std::uint32_t>(threads),
                                              .fixed_pages = fixed_pages};
        std::string why;
        frames = here.on_gpu() ? buffer::make_gpu_frames(0, buffer::frames_for(wanted), why)
                               : buffer::make_cpu_frames(buffer::frames_for(wanted), why);
        if (frames == nullptr) return {-ENOMEM, "buffer: " + why + "; give a smaller --file"};
        if (status s = buffer::manager::make(wanted, *frames, host::linux_environment(), all); !s)
            return s;
        fd = ::open(here.file().path().c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) return {-errno, here.file().path() + ": " + error_text(-errno)};
        if (const int code = all->add_file(fd, pages * page_bytes); code < 0)
            return {code, here.file().path() + ": " + error_text(code)};
        const auto session = all->open_session();
        for (std::uint64_t page = 0; page < pages; ++page) {
            buffer::fixed_page fixed;
            if (const int code = session->fix({page, 0}, use_kind::read, fixed); code != 0)
                return {code, "filling the buffer: " + error_text(code)};
            session->unfix(fixed, false);
        }
        return {};
    }
};

}  // namespace

status buffer_path(context& here) {
    const std::uint64_t pages = here.file_bytes(here.on_gpu() ? gib : 64 * mib) / page_bytes,
                        most = here.threads(std::max(1u, std::thread::hardware_concurrency()));
    if (status s = here.use_file(pages * page_bytes); !s) return s;
    std::vector<std::uint64_t> threads{1};
    if (most > 1) threads.push_back(most);
    const auto host_pages = static_cast<std::uint32_t>(
        std::max<std::uint64_t>(pages / 16, most * (fixed_pages + 1) + 1));
    for (const std::uint64_t count : threads) {
        filled_buffer near, far;
        const std::uint64_t looks = std::max<std::uint64_t>(pages, 1u << 14) * 4 / count;
        if (status s = near.make(here, host_pages, host_pages, 0, count); !s) return s;
        if (status s = far.make(here, pages, host_pages, static_cast<std::uint32_t>(pages), count);
            !s)
            return s;
        std::vector<std::uint64_t> plain(host_pages * page_bytes / 8);
        for (std::uint64_t page = 0; page < host_pages; ++page)
            plain[page * page_bytes / 8] = first_word(page);
        const std::string by =
            count == 1 ? ", 1 thread" : ", " + std::to_string(count) + " threads";
        series hits, looked, found, read;
        here.progress("buffer" + by);
        for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
            double a = 0, b = 0, c = 0, d = 0;
            if (status s = fix_pages(*near.all, host_pages, count, looks, a); !s) return s;
            if (status s = look_at_pages(plain, host_pages, count, looks, b); !s) return s;
            if (status s = fix_pages(*far.all, pages, count, looks / 4, c); !s) return s;
            if (status s = read_pages(far.fd, pages, count, looks / 4, d); !s) return s;
            hits.add(a), looked.add(b), found.add(c), read.add(d);
        }
        const buffer::manager_counts counts = far.all->counts();
        const double share =
            static_cast<double>(counts.device_hits) /
            static_cast<double>(counts.device_hits + counts.host_hits + counts.misses);
        if (status s = here.add({"6",
                                 "pages in the host, fixed and unfixed" + by,
                                 "",
                                 page_bytes,
                                 hits,
                                 "million/s",
                                 "a look at plain memory",
                                 looked,
                                 {},
                                 ""});
            !s)
            return s;
        if (status s = here.add({"S14",
                                 "pages of which the host has a 16th, the device the others" + by,
                                 "",
                                 page_bytes,
                                 found,
                                 "million/s",
                                 "pread from the page cache",
                                 read,
                                 {},
                                 std::to_string(static_cast<int>(100 * share)) +
                                     " % found in the device, filling included"});
            !s)
            return s;
    }
    return {};
}

}  // namespace penstock::bench
