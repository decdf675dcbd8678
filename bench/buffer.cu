// Cases of the buffer: signatures of blocks, moves between host and device, and pages fixed there.
#include <atomic>
#include <numeric>
#include <random>

#include "buffer/pool/content_hash.hpp"
#include "buffer/pool/device_frames.hpp"
#include "buffer/pool/manager.hpp"
#include "cases.hpp"

#if defined(__CUDACC__)
#include "buffer/pool/gpu_hashes.cuh"
#include "gpu.cuh"
#endif

namespace penstock::bench {

// Signatures of blocks of 4 KiB: on a GPU against all cores and one core, on the cpu by all cores
// against one. What the device finds is compared with what a core finds.

namespace {

using buffer::content_hash;
using buffer::signature_kind;

constexpr std::uint64_t signed_block_bytes = 4096;

struct signed_input {
    std::vector<buffer::strand_word> words;
    std::vector<content_hash> found;  // by cores
    std::uint64_t count;

    explicit signed_input(std::uint64_t bytes)
        : words(bytes / sizeof(buffer::strand_word)),
          found(bytes / signed_block_bytes),
          count(bytes / signed_block_bytes) {
        for (std::uint64_t i = 0; i < words.size(); ++i)
            words[i] = {mix64(2 * i), mix64(2 * i + 1)};
    }
    [[nodiscard]] const std::byte* block(std::uint64_t i) const {
        return reinterpret_cast<const std::byte*>(words.data()) + i * signed_block_bytes;
    }
    [[nodiscard]] std::uint64_t bytes() const { return count * signed_block_bytes; }

    // GB/s by so many threads.
    double sign(signature_kind kind, std::uint64_t threads) {
        const double seconds = seconds_of_threads(threads, [&](std::uint64_t t) {
            for (std::uint64_t i = count * t / threads; i < count * (t + 1) / threads; ++i)
                found[i] = buffer::hash_of(kind, block(i), signed_block_bytes);
        });
        return gigabytes_a_second(bytes(), seconds);
    }
};

const char* name_of_kind(signature_kind kind) {
    return kind == signature_kind::md5 ? "MD5" : "quick signatures";
}

// GB/s of what a device makes of the blocks, again and again.
series sign_on_gpu([[maybe_unused]] context& here, [[maybe_unused]] const signed_input& input,
                   [[maybe_unused]] signature_kind kind) {
    series out;
#if defined(__CUDACC__)
    const memory blocks(backend::gpu, input.bytes()),
        signatures(backend::gpu, input.count * sizeof(content_hash));
    require_cuda(
        cudaMemcpy(blocks.as<void>(), input.block(0), input.bytes(), cudaMemcpyHostToDevice),
        "copy");
    for (std::uint64_t repeat = 0; repeat < here.repeats(7) + 1; ++repeat) {
        const double seconds = kernel_seconds([&] {
            return buffer::hash_blocks(kind, blocks.as<std::byte>(), input.count,
                                       signed_block_bytes, signatures.as<content_hash>(), nullptr);
        });
        if (repeat != 0)
            out.add(gigabytes_a_second(input.bytes(), seconds));  // the first loads the code
    }
    std::vector<content_hash> got(input.count);
    signatures.copy_out(got.data(), input.count * sizeof(content_hash));
    expect(got == input.found, "the device found others than the cores");
#endif
    return out;
}

}  // namespace

void signature_speed(context& here) {
    signed_input input(here.file_bytes(gib, 256 * mib) / signed_block_bytes * signed_block_bytes);
    const std::uint64_t cores = here.host_threads();
    for (const signature_kind kind : {signature_kind::quick, signature_kind::md5}) {
        here.progress(name_of_kind(kind));
        series single, all;
        for (std::uint64_t repeat = 0; repeat < here.repeats(7); ++repeat) {
            single.add(input.sign(kind, 1));
            all.add(input.sign(kind, cores));
        }
        const std::string name = std::string(name_of_kind(kind)) + " of blocks of 4 KiB";
        if (!here.on_gpu()) {
            here.add("6", name + ", " + std::to_string(cores) + " threads", signed_block_bytes,
                     "GB/s", {all, single}, "one core");
            continue;
        }
        const series device = sign_on_gpu(here, input, kind);
        const char* const note = "kernel only, blocks in device memory";
        here.add("6", name, signed_block_bytes, "GB/s", {device, all},
                 "all cores, the same signatures", note);
        here.add("6", name, signed_block_bytes, "GB/s", {device, single},
                 "one core, the same signatures", note);
    }
}

// Pages of a buffer that change places between the host's frames and a device's, in batches, as
// they do when a miss of the host is found there. Baseline: the copy engine with 64 MiB at a time
// to the host, which is what the bus can do; on the cpu memcpy.

namespace {

using buffer::direction;
using buffer::frame_move;

constexpr std::uint64_t frame_bytes = 4096;
constexpr std::uint32_t most_moves = 4096;
constexpr unsigned most_queues = 8;

// Batches of frames at random, of which a thread has its own part of all: what is measured is the
// moving, not the choice.
class batches {
public:
    batches(std::uint32_t frames, unsigned queues, std::uint32_t size, direction way)
        : lists_(queues) {
        std::mt19937_64 random(1);
        const auto shuffled = [&] {
            std::vector<std::uint32_t> out(frames);
            std::iota(out.begin(), out.end(), 0);
            std::shuffle(out.begin(), out.end(), random);
            return out;
        };
        const std::vector<std::uint32_t> far = shuffled(), near = shuffled();
        std::size_t at = 0;
        for (auto& own : lists_)
            for (std::uint64_t i = 0; i < frames / queues / size; ++i) {
                auto& batch = own.emplace_back(size);
                for (frame_move& entry : batch) entry = {far[at], near[at], way}, ++at;
            }
    }
    // GB that came to the host in a second.
    [[nodiscard]] double measure(buffer::device_frames& frames, std::uint64_t times) const {
        const double seconds = seconds_of_threads(lists_.size(), [&](std::uint64_t t) {
            for (std::uint64_t i = 0; i < times; ++i)
                for (const auto& batch : lists_[t])
                    expect(frames.move(static_cast<unsigned>(t), batch) == 0,
                           "the device failed to move pages");
        });
        return gigabytes_a_second(times * pages() * frame_bytes, seconds);
    }
    // Each thread's own.
    [[nodiscard]] const std::vector<std::vector<std::vector<frame_move>>>& lists() const {
        return lists_;
    }
    [[nodiscard]] std::uint64_t pages() const {
        return std::accumulate(
            lists_.begin(), lists_.end(), std::uint64_t{0},
            [](auto sum, const auto& l) { return sum + (l.empty() ? 0 : l.size() * l[0].size()); });
    }

private:
    std::vector<std::vector<std::vector<frame_move>>> lists_;
};

// What the bus can do: the copy engine, or memcpy where there is none.
class plain_copy {
public:
    plain_copy([[maybe_unused]] const context& here, std::uint64_t bytes) {
#if defined(__CUDACC__)
        if (here.on_gpu()) {
            near_ = memory(backend::gpu, piece);
            far_ = memory::pinned(piece);
            return;
        }
#endif
        from_.assign(bytes, std::byte{1});
        to_.assign(bytes, std::byte{2});
    }
    // GB/s.
    [[nodiscard]] double rate() {
#if defined(__CUDACC__)
        if (from_.empty()) {
            const double seconds = kernel_seconds([&] {
                for (int i = 0; i < 16; ++i)
                    cudaMemcpyAsync(far_.as<void>(), near_.as<void>(), piece,
                                    cudaMemcpyDeviceToHost);
            });
            return gigabytes_a_second(16 * piece, seconds);
        }
#endif
        const stopwatch watch;
        std::memcpy(to_.data(), from_.data(), from_.size());
        const double seconds = watch.seconds();
        expect(to_.back() == std::byte{1}, "memcpy did not");
        return gigabytes_a_second(from_.size(), seconds);
    }

private:
    static constexpr std::uint64_t piece = 64 * mib;
    memory near_, far_;
    std::vector<std::byte> from_, to_;
};

// The same pages to the host by a copy of the API for each, and one wait for a batch: what a buffer
// without a kernel of its own would do. GB/s.
series copies_by_page([[maybe_unused]] context& here, [[maybe_unused]] const batches& all,
                      [[maybe_unused]] buffer::device_frames& frames,
                      [[maybe_unused]] std::uint64_t frames_each) {
    series out;
#if defined(__CUDACC__)
    constexpr std::uint64_t most_pages = 4096;  // of a thread: a call takes microseconds
    const memory near(backend::gpu, frames_each * frame_bytes);
    std::byte* const far = frames.host_frames();
    for (std::uint64_t repeat = 0; repeat < here.repeats(7) + 1; ++repeat) {
        std::atomic<std::uint64_t> pages{0};
        std::vector<apps::gpu_stream> streams(all.lists().size());
        for (apps::gpu_stream& stream : streams)
            require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
        const double seconds = seconds_of_threads(streams.size(), [&](std::uint64_t t) {
            const cudaStream_t stream = streams[t];
            cudaError_t code = cudaSuccess;
            std::uint64_t own = 0;
            for (std::size_t i = 0; i < all.lists()[t].size() && own < most_pages; ++i) {
                for (const frame_move& page : all.lists()[t][i])
                    if (code == cudaSuccess)
                        code = cudaMemcpyAsync(far + page.host * frame_bytes,
                                               near.as<std::byte>() + page.device * frame_bytes,
                                               frame_bytes, cudaMemcpyDeviceToHost, stream);
                if (code == cudaSuccess) code = cudaStreamSynchronize(stream);
                own += all.lists()[t][i].size();
            }
            expect(code == cudaSuccess, "a copy of a page failed");
            pages += own;
        });
        if (repeat != 0) out.add(gigabytes_a_second(pages * frame_bytes, seconds));
    }
#endif
    return out;
}

}  // namespace

void exchange_path(context& here) {
    const auto frames_each =
        static_cast<std::uint32_t>(here.file_bytes(gib, 64 * mib) / frame_bytes);
    const auto queues = static_cast<unsigned>(
        std::min<std::uint64_t>(here.threads(here.on_gpu() ? 4 : 1), most_queues));
    const buffer::frames_shape shape{frames_each, frames_each, frame_bytes, queues, most_moves};
    std::string why;
    const auto frames = here.on_gpu()
                            ? buffer::make_gpu_frames(here.own_options().device, shape, why)
                            : buffer::make_cpu_frames(shape, why);
    if (frames == nullptr) throw failure(-ENOMEM, "exchange: " + why + "; give a smaller --file");
    std::memset(frames->host_frames(), 1, frames_each * frame_bytes);
    plain_copy bus(here, frames_each * frame_bytes);
    for (const direction way : {direction::exchange, direction::to_host})
        for (const std::uint32_t size : {1u, 16u, 64u, 256u, 1024u, 4096u}) {
            const batches all(frames_each, queues, size, way);
            if (all.pages() == 0) continue;
            const std::string name =
                std::string(way == direction::exchange ? "pages that change places with victims"
                                                       : "pages to the host") +
                ", " + std::to_string(size) + " a batch, " + counted(queues, "thread");
            here.progress(name);
            // Single pages take long.
            const std::uint64_t times =
                here.on_gpu() && size >= 64
                    ? std::max<std::uint64_t>(1, gib / (all.pages() * frame_bytes))
                    : 1;
            measured moved;
            for (std::uint64_t repeat = 0; repeat < here.repeats(7); ++repeat) {
                moved.ours.add(all.measure(*frames, times));
                moved.baseline.add(bus.rate());
            }
            here.add("S14", name, frame_bytes, "GB/s", moved,
                     here.on_gpu() ? "the copy engine, 64 MiB at a time to the host" : "memcpy",
                     "GB that come to the host");
            if (here.on_gpu() && way == direction::to_host)
                here.add("D18", name, frame_bytes, "GB/s",
                         {moved.ours, copies_by_page(here, all, *frames, frames_each)},
                         "a copy of the API for each page, one wait for a batch",
                         "GB that come to the host");
        }
}

// The buffer manager: pages that are in the host fixed by one thread and by all, against looking at
// plain memory; and pages that are found in the device, against the file in the page cache.

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
    const double seconds = seconds_of_threads(threads, [&](std::uint64_t t) {
        work([=](std::uint64_t i) { return mix64(i * threads + t + 1) % pages; }, errors);
    });
    require(errors.get());
    return 1e-6 * (threads * looks) / seconds;
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

    // `stands_back`: the device's part is used only as far as it pays.
    filled_buffer(context& here, std::uint64_t pages, std::uint32_t host_pages,
                  std::uint32_t device_pages, std::uint64_t threads, bool stands_back)
        : fd(here.file().open(O_RDONLY)) {
        const buffer::manager_settings wanted{.page_bytes = page_bytes,
                                              .host_pages = host_pages,
                                              .device_pages = device_pages,
                                              .sessions = static_cast<std::uint32_t>(threads),
                                              .fixed_pages = fixed_pages,
                                              .stands_back = stands_back};
        std::string why;
        frames = here.on_gpu() ? buffer::make_gpu_frames(here.own_options().device,
                                                         buffer::frames_for(wanted), why)
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

std::string found_in_device(const buffer::manager& all) {
    const buffer::manager_counts counts = all.counts();
    const double share = static_cast<double>(counts.device_hits) /
                         static_cast<double>(counts.device_hits + counts.host_hits + counts.misses);
    return std::to_string(static_cast<int>(100 * share)) +
           " % found in the device, filling included";
}

void measure_threads(context& here, std::uint64_t pages, std::uint32_t host_pages,
                     std::uint64_t threads) {
    const auto device_pages = static_cast<std::uint32_t>(pages);
    const filled_buffer near(here, host_pages, host_pages, 0, threads, true);
    const filled_buffer far(here, pages, host_pages, device_pages, threads, false);
    const filled_buffer choosing(here, pages, host_pages, device_pages, threads, true);
    const std::uint64_t looks = std::max<std::uint64_t>(pages, 1u << 14) * 4 / threads;
    std::vector<std::uint64_t> plain(host_pages * page_bytes / 8);
    for (std::uint64_t page = 0; page < host_pages; ++page)
        plain[page * page_bytes / 8] = first_word(page);
    const std::string by = ", " + counted(threads, "thread");
    measured in_host, in_device, by_choice;
    here.progress("buffer" + by);
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        in_host.ours.add(fix_pages(*near.all, host_pages, threads, looks));
        in_host.baseline.add(look_at_pages(plain, host_pages, threads, looks));
        in_device.ours.add(fix_pages(*far.all, pages, threads, looks / 4));
        by_choice.ours.add(fix_pages(*choosing.all, pages, threads, looks / 4));
        const double by_hand = read_pages(far.fd, pages, threads, looks / 4);
        in_device.baseline.add(by_hand);
        by_choice.baseline.add(by_hand);
    }
    here.add("6", "pages in the host, fixed and unfixed" + by, page_bytes, "million/s", in_host,
             "a look at plain memory");
    here.add("S14", "pages of which the host has a 16th, the device the others" + by, page_bytes,
             "million/s", in_device, "pread from the page cache", found_in_device(*far.all));
    here.add("S14", "the same, the device used only as far as it pays" + by, page_bytes,
             "million/s", by_choice, "pread from the page cache", found_in_device(*choosing.all));
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
