// The part of a GPU where there is none: threads, and memory of the host.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "common/device_memory.hpp"
#include "common/message.hpp"
#include "common/threads.hpp"
#include "common/files.hpp"
#include "part_maker.hpp"
#include "penstock/options.hpp"

namespace penstock::stitch {

namespace {

constexpr std::uint64_t copy_bytes = 4u << 20;

class thread_maker final : public part_maker {
public:
    thread_maker(std::uint32_t threads, std::uint32_t copiers)
        : threads_(threads), copiers_(copiers) {}
    status make(const part_work& work) override { return make_on_threads(work, threads_); }

    status take(std::uint64_t tile_bytes, std::uint64_t image_bytes, std::byte*& tiles,
                std::byte*& image) override {
        memory_ = apps::make_host_memory();
        if (memory_->allocate(tiles, tile_bytes) && memory_->allocate(image, image_bytes))
            return {};
        drop();
        return {-ENOMEM, format_size(tile_bytes + image_bytes) +
                             " of memory for tiles and image are not free; use a smaller --split "
                             "or fewer tiles"};
    }
    void drop() override { memory_.reset(); }

    status bring(const std::string& path, std::uint64_t offset, std::uint64_t bytes,
                 std::byte* to) override {
        const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return {-errno, apps::shown(path) + ": " + error_text(-errno) +
                                "; name a file of tiles that can be read"};
        apps::first_error errors;
        std::atomic<std::uint64_t> next{0};
        apps::on_threads(copiers_, [&](std::uint32_t) {
            for (std::uint64_t at = next.fetch_add(copy_bytes); at < bytes && !errors.stop();
                 at = next.fetch_add(copy_bytes))
                errors.note(apps::read_exactly(path, fd, to + at, std::min(copy_bytes, bytes - at),
                                               offset + at));
        });
        ::close(fd);
        return errors.get();
    }

    status send(const rows_in_memory& rows, const image_file& to) override {
        apps::first_error errors;
        std::atomic<std::uint64_t> next{0};
        apps::on_threads(copiers_, [&](std::uint32_t) {
            for (std::uint64_t row = next.fetch_add(1); row < rows.height && !errors.stop();
                 row = next.fetch_add(1))
                errors.note(to.write_at(rows.pixels + row * rows.width,
                                        2 * std::uint64_t{rows.width},
                                        image_header_bytes + 2 * row * rows.stride));
        });
        return errors.get();
    }

private:
    const std::uint32_t threads_, copiers_;
    std::unique_ptr<apps::device_memory> memory_;
};

}  // namespace

std::unique_ptr<part_maker> make_thread_maker(std::uint32_t threads, std::uint32_t copiers) {
    return std::make_unique<thread_maker>(threads, copiers);
}

}  // namespace penstock::stitch
