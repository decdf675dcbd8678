// Baseline: plain CUDA. All cores read a chunk of the databases into pinned memory while the chunks
// before it are copied and compared; each chunk has a stream of its own. The comparison is the one
// of the method penstock.
#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "common/message.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "common/files.hpp"
#include "methods.hpp"
#if defined(__CUDACC__)
#include "block_compare.cuh"
#include "common/gpu.cuh"
#endif

namespace penstock::match {

#if defined(__CUDACC__)

namespace {

constexpr std::uint64_t chunk_bytes = 64u << 20;
constexpr std::uint32_t chunks_in_flight = 3;  // one is read, one copied, one compared

// Images that lie one behind the other in device memory.
struct staged_source {
    const std::byte* first;

    PENSTOCK_D std::uint32_t page_shift() const { return 31; }  // everything is on "page" 0
    PENSTOCK_D std::uint32_t in_page(std::uint64_t) const { return 0; }
    PENSTOCK_D bool pin(const block& g, const match_view&, const tile_place& at, std::uint32_t slab,
                        std::uint32_t, block_state& s) const {
        if (threadIdx.x < at.images)
            s.piece[threadIdx.x][0] = reinterpret_cast<std::uint64_t>(
                first + at.byte_of(threadIdx.x) + std::uint64_t{slab} * sizeof(float));
        g.sync();
        return true;
    }
    PENSTOCK_D void unpin(const block& g, block_state&) const { g.sync(); }
};

__global__ void match_chunk(const __grid_constant__ match_view view,
                            const __grid_constant__ database_view chunk, std::uint32_t database,
                            std::uint64_t items, staged_source source) {
    block_state& state = shared_state();
    for (std::uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
        tile_place at = place_in(view, chunk, item / view.group_count,
                                 static_cast<std::uint32_t>(item % view.group_count));
        at.database = database;
        compare_on_block(this_block(), source, view, at, state);
    }
}

struct chunk_room {
    apps::pinned_array<std::byte> pinned;
    apps::gpu_array<std::byte> there;
    apps::pinned_array<std::uint32_t> matched;  // as it was when the chunk had been compared
    apps::gpu_stream stream;

    bool allocate(std::uint64_t bytes) {
        return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
               cudaMallocHost(&pinned, bytes) == cudaSuccess &&
               cudaMallocHost(&matched, sizeof *matched) == cudaSuccess &&
               cudaMalloc(&there, bytes) == cudaSuccess && (*matched = 0, true);
    }
};

// All cores: each reads a part.
status read_chunk(const image_file& file, int fd, std::byte* to, std::uint64_t bytes,
                  std::uint64_t offset, std::uint32_t threads) {
    apps::first_error errors;
    const std::uint64_t part = (bytes / threads + 4095) / 4096 * 4096;
    apps::on_threads(threads, [&](std::uint32_t i) {
        const std::uint64_t begin = std::min(bytes, i * part), end = std::min(bytes, begin + part);
        if (begin < end)
            errors.note(apps::read_exactly(file.path, fd, to + begin, end - begin, offset + begin));
    });
    return errors.get();
}

struct cuda_search {
    match_memory memory;
    chunk_room rooms[chunks_in_flight];
    std::uint32_t threads = 1;
    std::uint64_t chunk_images = 1;
    unsigned most_blocks = 1;
    std::uint64_t chunks = 0;

    explicit cuda_search(int device) : memory(apps::make_gpu_memory(device)) {}

    status prepare(const match_job& job) {
        threads = apps::thread_count(job.settings.worker_threads);
        std::uint64_t image_bytes = 1, images = 1, all_images = 0;
        for (const image_file& file : job.databases) {
            image_bytes = std::max(image_bytes, file.header.stride_bytes());
            images = std::max(images, file.header.image_count);
            all_images += file.header.image_count;
        }
        chunk_images = std::clamp<std::uint64_t>(
            chunk_bytes / image_bytes / block_images * block_images, block_images,
            (images + block_images - 1) / block_images * block_images);
        most_blocks = static_cast<unsigned>(
            apps::resident_blocks(job.settings.device, match_chunk, block_threads));
        // A chunk is a search of its own, which must keep the whole GPU busy.
        const match_cut cut{
            block_images, block_queries,
            4ull * most_blocks * std::max<std::uint64_t>(1, all_images / chunk_images),
            job.floats()};
        if (status s = memory.place(job, cut, {}); !s) return s;
        for (chunk_room& room : rooms)
            if (!room.allocate(chunk_images * image_bytes))
                return {-ENOMEM, std::string("--method cuda: ") +
                                     cudaGetErrorString(cudaGetLastError()) +
                                     "; free some memory of the GPU"};
        return memory.reset();
    }

    // Reads, and leaves copy and comparison to the stream. `all_matched`: there is nothing left to
    // search for.
    status send(const match_job& job, const database_view& from, std::uint32_t database, int fd,
                std::uint64_t first, bool& all_matched) {
        chunk_room& room = rooms[chunks % chunks_in_flight];
        if (cudaStreamSynchronize(room.stream) != cudaSuccess)
            return apps::cuda_error();  // done with what it holds
        const match_view& view = memory.view();
        all_matched = *room.matched == view.query_count;
        if (all_matched) return {};
        database_view chunk = from;
        chunk.first_byte = 0;
        chunk.first_image += first;
        chunk.image_count = std::min(chunk_images, from.image_count - first);
        const std::uint64_t bytes = chunk.image_count * chunk.stride_bytes;
        if (status s = read_chunk(job.databases[database], fd, room.pinned, bytes,
                                  from.first_byte + first * from.stride_bytes, threads);
            !s)
            return s;
        if (cudaMemcpyAsync(room.there, room.pinned, bytes, cudaMemcpyHostToDevice, room.stream) !=
            cudaSuccess)
            return apps::cuda_error();
        const std::uint64_t items =
            (chunk.image_count + block_images - 1) / block_images * view.group_count;
        match_chunk<<<static_cast<unsigned>(std::min<std::uint64_t>(items, most_blocks)),
                      block_threads, 0, room.stream>>>(view, chunk, database, items,
                                                       staged_source{room.there});
        if (cudaGetLastError() != cudaSuccess ||
            cudaMemcpyAsync(room.matched, &view.totals->matched, sizeof *room.matched,
                            cudaMemcpyDeviceToHost, room.stream) != cudaSuccess)
            return apps::cuda_error();
        ++chunks;
        return {};
    }

    status search_one(const match_job& job, std::uint32_t database, const database_view& from,
                      std::uint64_t& bytes_read, bool& all_matched) {
        const image_file& file = job.databases[database];
        apps::unique_fd fd;
        if (status s = apps::open_to_read(file.path, "a file of images", fd); !s) return s;
        status ended;
        for (std::uint64_t first = 0; first < from.image_count && ended.ok();
             first += chunk_images) {
            ended = send(job, from, database, fd, first, all_matched);
            if (all_matched) break;
            bytes_read += std::min(chunk_images, from.image_count - first) * from.stride_bytes;
        }
        return ended;
    }

    status run(const match_job& job, match_report& report) {
        std::vector<float> queries;
        if (status s = read_queries(job, queries); !s) return s;
        if (status s = memory.upload_queries(queries); !s) return s;
        bool all_matched = memory.view().query_count == 0;
        std::uint64_t first_image = 0;
        for (std::uint32_t d = 0; d < job.databases.size() && !all_matched; ++d) {
            const image_header& h = job.databases[d].header;
            const database_view from{
                -1, h.data_offset, h.stride_bytes(), h.image_count, first_image, 0};
            if (status s = search_one(job, d, from, report.bytes_read, all_matched); !s) return s;
            first_image += h.image_count;
        }
        for (const chunk_room& room : rooms)
            if (cudaStreamSynchronize(room.stream) != cudaSuccess) return apps::cuda_error();
        return memory.download(report);
    }
};

}  // namespace

status match_with_cuda(const match_job& job, match_report& report) {
    apps::stopwatch watch;
    const int device = job.settings.device;
    if (status s = apps::use_gpu(device); !s) return s;
    cuda_search all(device);
    if (status s = all.prepare(job); !s) return s;
    report.backend = "gpu";
    report.note = std::to_string(all.threads) + " threads read chunks of " +
                  format_size(all.chunk_images * job.databases[0].header.stride_bytes());
    report.start_seconds = watch.lap();
    return apps::repeat_timed(1, report, [&] { return all.run(job, report); });
}

#else

status match_with_cuda(const match_job&, match_report&) { return apps::no_cuda(); }

#endif

}  // namespace penstock::match
