// Baseline: plain CUDA. All cores read a chunk of the databases into pinned memory while the chunks
// before it are copied and compared; each chunk has a stream of its own. The comparison is the one
// of the method penstock.
#include <algorithm>
#include <cerrno>

#include "common/files.hpp"
#include "common/threads.hpp"
#include "common/work_items.hpp"
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
        const tile_place at =
            place_in(view, chunk, database, item / view.group_count, item % view.group_count);
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

struct cuda_search {
    const match_job& job;
    match_memory memory{apps::make_gpu_memory(job.settings.device)};
    chunk_room rooms[chunks_in_flight];
    std::uint32_t threads = apps::thread_count(job.settings.worker_threads);
    std::uint64_t chunk_images = 1;
    std::uint64_t most_blocks = 1;

    status prepare() {
        std::uint64_t image_bytes = 1, images = 1;
        for (const image_file& file : job.databases) {
            image_bytes = std::max(image_bytes, file.header.stride_bytes());
            images = std::max(images, file.header.image_count);
        }
        chunk_images = std::clamp<std::uint64_t>(
            chunk_bytes / image_bytes / block_images * block_images, block_images,
            apps::pieces_of(images, block_images) * block_images);
        most_blocks = apps::resident_blocks(job.settings.device, match_chunk, block_threads);
        // A chunk is a search of its own, which must keep the whole GPU busy.
        const match_cut cut{
            block_images, block_queries,
            4 * most_blocks * std::max<std::uint64_t>(1, job.image_count() / chunk_images),
            job.floats()};
        if (status s = memory.place(job, cut, {}); !s) return s;
        for (chunk_room& room : rooms)
            if (!room.allocate(chunk_images * image_bytes))
                return {-ENOMEM, std::string("--method cuda: ") +
                                     cudaGetErrorString(cudaGetLastError()) +
                                     "; free some memory of the GPU"};
        return {};
    }

    status run(match_report& report) {
        std::vector<float> queries(memory.view().query_count * job.floats());
        if (status s = read_queries(job, queries.data()); !s) return s;
        if (status s = memory.upload_queries(queries); !s) return s;
        if (status s = search_all(report.bytes_read); !s) return s;
        for (const chunk_room& room : rooms)
            if (cudaStreamSynchronize(room.stream) != cudaSuccess) return apps::cuda_error();
        return memory.download(report);
    }

    // Ends as soon as it sees that there is nothing left to search for.
    status search_all(std::uint64_t& bytes_read) {
        std::uint64_t first_image = 0, chunks = 0;
        for (std::uint32_t database = 0; database < job.databases.size(); ++database) {
            const image_file& file = job.databases[database];
            const image_header& h = file.header;
            apps::unique_fd fd;
            if (status s = apps::open_to_read(file.path, "a file of images", fd); !s) return s;
            for (std::uint64_t first = 0; first < h.image_count; first += chunk_images) {
                chunk_room& room = rooms[chunks++ % chunks_in_flight];
                if (cudaStreamSynchronize(room.stream) != cudaSuccess)
                    return apps::cuda_error();  // done with what it holds
                if (*room.matched == memory.view().query_count) return {};
                const database_view chunk{-1,
                                          h.data_offset + first * h.stride_bytes(),
                                          h.stride_bytes(),
                                          std::min(chunk_images, h.image_count - first),
                                          first_image + first,
                                          0};
                if (status s = send(room, fd, database, chunk); !s) return s;
                bytes_read += chunk.image_count * chunk.stride_bytes;
            }
            first_image += h.image_count;
        }
        return {};
    }

    // All cores read a chunk, each a part; copy and comparison are left to the room's stream.
    status send(chunk_room& room, int fd, std::uint32_t database, database_view chunk) {
        const std::uint64_t bytes = chunk.image_count * chunk.stride_bytes;
        if (status s = apps::on_pieces(
                threads, bytes, apps::pieces_of(bytes, threads * 4096ull) * 4096,
                [&](std::uint32_t, std::uint64_t at, std::uint64_t count) {
                    return apps::read_exactly(job.databases[database].path, fd, room.pinned + at,
                                              count, chunk.first_byte + at);
                });
            !s)
            return s;
        chunk.first_byte = 0;
        const match_view& view = memory.view();
        const std::uint64_t items =
            apps::pieces_of(chunk.image_count, block_images) * view.group_count;
        if (cudaMemcpyAsync(room.there, room.pinned, bytes, cudaMemcpyHostToDevice, room.stream) !=
            cudaSuccess)
            return apps::cuda_error();
        match_chunk<<<static_cast<unsigned>(std::min(items, most_blocks)), block_threads, 0,
                      room.stream>>>(view, chunk, database, items, staged_source{room.there});
        if (cudaPeekAtLastError() != cudaSuccess ||
            cudaMemcpyAsync(room.matched, &view.totals->matched, sizeof *room.matched,
                            cudaMemcpyDeviceToHost, room.stream) != cudaSuccess)
            return apps::cuda_error();
        return {};
    }
};

}  // namespace

status match_with_cuda(const match_job& job, match_report& report) {
    apps::stopwatch watch;
    if (status s = apps::use_gpu(job.settings.device); !s) return s;
    cuda_search all{job};
    if (status s = all.prepare(); !s) return s;
    report.backend = "gpu";
    report.note = std::to_string(all.threads) + " threads read chunks of " +
                  format_size(all.chunk_images * job.databases[0].header.stride_bytes());
    report.start_seconds = watch.lap();
    return apps::repeat_timed(1, report, [&] { return all.run(report); });
}

#else

status match_with_cuda(const match_job&, match_report&) { return apps::no_cuda(); }

#endif

}  // namespace penstock::match
