// The original's calls from a second source file of the same program: files that are made,
// one-thread calls, growth, refusals.
#include "device/gpufs_second_file.hpp"
#include "device/support.cuh"
#include "penstock/gpufs_compat.cuh"

namespace penstock::test {

namespace {

__global__ void sum_with_gread(const char* name, unsigned long long* sum) {
    __shared__ uchar bytes[FS_BLOCKSIZE];
    const int fd = gopen(name, O_GRDONLY);
    const std::size_t size = fstat(fd);
    unsigned long long own_sum = 0;
    for (std::size_t at = 0; at < size; at += FS_BLOCKSIZE) {
        const std::size_t got = gread(fd, at, FS_BLOCKSIZE, bytes);
        for (std::size_t i = threadIdx.x; i < got; i += blockDim.x) own_sum += bytes[i];
        __syncthreads();
    }
    atomicAdd(sum, own_sum);
    gclose(fd);
}

constexpr int flag_count = 6;
constexpr int all_flags[flag_count] = {O_GWRONCE, O_GWRONLY, O_GCREAT,
                                       O_GRDWR,   O_GRDONLY, O_GRDWR | O_GCREAT};
constexpr bool makes_file[flag_count] = {true, true, true, false, false, true};

// Opens a name for each of the flags, by a block or by one thread; what is written there is "ab".
__global__ void open_all(const char* const* names, const int* flags, bool single, int* results) {
    __shared__ int fd;
    __shared__ uchar text[2];
    for (int i = 0; i < flag_count; ++i) {
        if (single) {
            BEGIN_SINGLE_THREAD
            fd = single_thread_open(names[i], flags[i]);
            END_SINGLE_THREAD
        } else {
            const int opened = gopen(names[i], flags[i]);
            BEGIN_SINGLE_THREAD
            fd = opened;
            END_SINGLE_THREAD
        }
        BEGIN_SINGLE_THREAD
        results[i] = fd < 0 ? fd : 0;
        text[0] = 'a';
        text[1] = 'b';
        END_SINGLE_THREAD
        if (fd < 0) continue;
        const bool good =
            gwrite(fd, 0, 2, text) == 2 && gread(fd, 1, 1, text) == 1 && text[0] == 'b';
        if (!good && threadIdx.x == 0) results[i] = -EIO;
        gclose(fd);
    }
}

// One thread of the block asks for the size, with the others waiting for it, then all do, and one
// after a single_thread_open.
__global__ void sizes_by_one_thread(const char* name, std::size_t* sizes) {
    __shared__ int single;
    const int fd = gopen(name, O_GRDONLY);
    if (threadIdx.x == 77) sizes[0] = fstat(fd);
    __syncthreads();
    const std::size_t size = fstat(fd);
    if (threadIdx.x == 3) sizes[1] = size;
    gclose(fd);
    BEGIN_SINGLE_THREAD
    single = single_thread_open(name, O_GRDONLY);
    sizes[2] = fstat(single);
    sizes[3] = static_cast<std::size_t>(single_thread_close(single));
    sizes[4] = fstat(single);
    sizes[5] = fstat(-1);
    END_SINGLE_THREAD
}

// Blocks map the pages of a file and store only at the beginning of the first.
__global__ void map_with_zero_tail(const char* name, int flags, std::size_t bytes, int* bad) {
    const int fd = gopen(name, flags);
    for (std::size_t at = std::size_t{blockIdx.x} * FS_BLOCKSIZE; at < bytes;
         at += std::size_t{gridDim.x} * FS_BLOCKSIZE) {
        const std::size_t size = bytes - at < FS_BLOCKSIZE ? bytes - at : FS_BLOCKSIZE;
        volatile uchar* page = static_cast<volatile uchar*>(
            gmmap(nullptr, size, 0, flags, fd, static_cast<off_t>(at)));
        if (page == GMAP_FAILED) {
            if (threadIdx.x == 0) atomicAdd(bad, 1);
            continue;
        }
        for (std::size_t i = threadIdx.x; at == 0 && i < 100; i += blockDim.x)
            page[i] = static_cast<uchar>(i + 1);
        if (gmunmap(page + threadIdx.x, 0) != 0 && threadIdx.x == 0) atomicAdd(bad, 1);
    }
    if (gclose(fd) != 0 && threadIdx.x == 0) atomicAdd(bad, 1);
}

enum refusal { own_neighbour, of_other_block, twice, outside, read_sync, refusal_count };

// Waits for a word that another block sets; false if it does not come.
__device__ bool wait_for(int* word, int value) {
    for (int round = 0; round < 2000000; ++round) {
        if (atomicAdd(word, 0) == value) return true;
        __nanosleep(1000);
    }
    return false;
}

// Two blocks that run at once map pages; each tries to unmap what it did not map.
__global__ void unmap_what_is_not_ours(const char* name, unsigned long long* addresses, int* words,
                                       int* results) {
    const int fd = gopen(name, O_GRDONLY);
    const off_t at = static_cast<off_t>(blockIdx.x) * FS_BLOCKSIZE;
    volatile uchar* const page =
        static_cast<volatile uchar*>(gmmap(nullptr, FS_BLOCKSIZE, 0, O_GRDONLY, fd, at));
    if (threadIdx.x == 0) {
        atomicExch(&addresses[blockIdx.x], reinterpret_cast<unsigned long long>(page));
        __threadfence();
        atomicAdd(&words[0], 1);
        if (!wait_for(&words[0], 2)) atomicAdd(&words[2], 1);
    }
    __syncthreads();
    if (blockIdx.x == 0) {
        volatile uchar* const other =
            reinterpret_cast<volatile uchar*>(atomicAdd(&addresses[1], 0ull));
        const int theirs = gmunmap(other, FS_BLOCKSIZE), beside = gmunmap(page + FS_BLOCKSIZE, 0);
        const int sync = gmsync(page, 0, 0), first = gmunmap(page, 0), second = gmunmap(page, 0),
                  no_frame = gmunmap(nullptr, 0);
        if (threadIdx.x == 0) {
            results[of_other_block] = theirs;
            results[own_neighbour] = beside;
            results[read_sync] = sync;
            results[twice] = first != 0 ? first : second;
            results[outside] = no_frame;
            __threadfence();
            atomicExch(&words[1], 1);
        }
    } else {
        if (threadIdx.x == 0 && !wait_for(&words[1], 1)) atomicAdd(&words[2], 1);
        __syncthreads();
        const int own_result = gmunmap(page, 0);
        if (threadIdx.x == 0 && own_result != 0) atomicAdd(&words[2], 1);
    }
    gclose(fd);
}

// The last of the mappings that a block may have, and one more.
__global__ void map_too_many(const char* name, int* results) {
    const int fd = gopen(name, O_GRDONLY);
    int held = 0;
    volatile void* pages[2] = {nullptr, nullptr};
    for (; held < 1000; ++held) {
        volatile void* const next = gmmap(nullptr, 1, 0, O_GRDONLY, fd, held % 2 * FS_BLOCKSIZE);
        if (next == GMAP_FAILED) break;
        pages[held % 2] = next;
    }
    int unmapped = 0, others = 0;
    while (gmunmap(pages[0], 0) == 0) ++unmapped;
    while (gmunmap(pages[1], 0) == 0) ++others;
    volatile void* const room = gmmap(nullptr, 1, 0, O_GRDONLY, fd, 0);
    const int given_back = room == GMAP_FAILED ? -1 : gmunmap(room, 0);
    if (threadIdx.x == 0) {
        results[0] = held;
        results[1] = unmapped;
        results[2] = others;
        results[3] = given_back;
    }
    gclose(fd);
}

// One block does what all wait for; the last block sees what all did.
__global__ void count_blocks(INIT_LOCK* init, LAST_SEMAPHORE* last, int* words) {
    __shared__ int sum;
    BEGIN_SINGLE_THREAD
    if (init->try_wait() == 1) {
        words[0] += 1;
        words[1] = 1000;
        init->signal();
    }
    sum = words[1];
    atomicAdd(&words[2], sum == 1000 ? 1 : 0);
    if (last->is_last()) words[3] = words[2];
    END_SINGLE_THREAD
}

options writable_options(const temporary_folder& folder) {
    options o = gpu_options(folder);
    o.writable = true;
    o.page_bytes = FS_BLOCKSIZE;
    o.cache_bytes = 64 * o.page_bytes;
    return o;
}

void open_with_all_flags(bool single) {
    const temporary_folder folder;
    const auto rt = make_runtime(writable_options(folder));
    ASSERT_EQ(gpufs_attach(*rt), 0);
    std::vector<std::unique_ptr<device_text>> texts;
    const shared_array<const char*> names(flag_count);
    const shared_array<int> flags(flag_count), results(flag_count);
    for (int i = 0; i < flag_count; ++i) {
        texts.push_back(std::make_unique<device_text>("file" + std::to_string(i)));
        names[i] = texts.back()->get();
        flags[i] = all_flags[i];
    }
    open_all<<<1, 64>>>(names.get(), flags.get(), single, results.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (int i = 0; i < flag_count; ++i) {
        EXPECT_EQ(results[i], makes_file[i] ? 0 : -ENOENT) << "flags " << all_flags[i];
        const std::string path = folder / ("file" + std::to_string(i));
        ASSERT_EQ(std::filesystem::exists(path), makes_file[i]) << "flags " << all_flags[i];
        if (makes_file[i]) {
            EXPECT_EQ(bytes_on_disk(path), (std::vector<std::uint8_t>{'a', 'b'}))
                << "flags " << all_flags[i];
        }
    }
}

constexpr int unattached_count = 14;

// What each call gives where the source file has no runtime yet, and code that did not look at the
// result of gopen goes on.
__global__ void call_without_a_runtime(const char* name, std::int64_t* results) {
    __shared__ uchar bytes[16];
    volatile void* const nowhere = bytes;
    const auto note = [&](int i, std::int64_t code) {
        if (threadIdx.x == 0) results[i] = code;
    };
    const int fd = gopen(name, O_GRDWR);
    note(0, fd);
    note(1, static_cast<std::int64_t>(gread(fd, 0, 16, bytes)));
    note(2, static_cast<std::int64_t>(gwrite(fd, 0, 16, bytes)));
    note(3, gfsync(fd));
    note(4, gftruncate(fd, 0));
    note(5, gunlink(name));
    note(6, gmunmap(nowhere, 16));
    note(7, gmsync(nowhere, 16, 0));
    note(8, gclose(fd));
    note(9, gmunmap_threadblock(nowhere, 16));
    note(10, gmmap(nullptr, 16, 0, O_GRDONLY, fd, 0) == GMAP_FAILED ? -ENODEV : 0);
    BEGIN_SINGLE_THREAD
    results[11] = single_thread_open(name, O_GRDONLY);
    results[12] = single_thread_fsync(fd) == -ENODEV ? single_thread_ftruncate(fd, 0) : 0;
    results[13] = single_thread_close(fd);
    END_SINGLE_THREAD
}

}  // namespace

void sum_in_second_file(const char* name, unsigned long long* sum) {
    sum_with_gread<<<1, 128>>>(name, sum);
}

// Of a library, say, that was loaded after gpufs_attach.
TEST(device_gpufs, calls_before_attach_give_an_error) {
    PENSTOCK_NEEDS_GPU();
    ASSERT_EQ(gpufs::source_file::fill_all(runtime_ref{}, nullptr), cudaSuccess);
    const device_text name("data");
    const shared_array<std::int64_t> results(unattached_count);
    call_without_a_runtime<<<1, 64>>>(name.get(), results.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (int i = 0; i < unattached_count; ++i) EXPECT_EQ(results[i], -ENODEV) << i;
}

TEST(device_gpufs, flags_that_make_the_file) {
    PENSTOCK_NEEDS_GPU();
    open_with_all_flags(false);
}
TEST(device_gpufs, flags_that_make_the_file_for_one_thread) {
    PENSTOCK_NEEDS_GPU();
    open_with_all_flags(true);
}

TEST(device_gpufs, size_for_one_thread) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(3, 12345));
    const auto rt = make_runtime(gpu_options(folder));
    ASSERT_EQ(gpufs_attach(*rt), 0);
    const device_text name("data");
    const shared_array<std::size_t> sizes(6);
    sizes_by_one_thread<<<1, 128>>>(name.get(), sizes.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(sizes[i], 12345u) << i;
    EXPECT_EQ(sizes[3], 0u) << "closed by one thread";
    EXPECT_EQ(static_cast<std::int64_t>(sizes[4]), -EBADF);
    EXPECT_EQ(static_cast<std::int64_t>(sizes[5]), -EBADF);
}

TEST(device_gpufs, a_mapping_extends_the_file) {
    PENSTOCK_NEEDS_GPU();
    for (const int flags : {O_GWRONCE, O_GWRONLY}) {
        for (const std::size_t bytes :
             {std::size_t{4 * FS_BLOCKSIZE}, std::size_t{4 * FS_BLOCKSIZE - 4}, std::size_t{50}}) {
            const temporary_folder folder;
            const auto rt = make_runtime(writable_options(folder));
            ASSERT_EQ(gpufs_attach(*rt), 0);
            const device_text name("out");
            const shared_array<int> bad(1);
            map_with_zero_tail<<<3, 64>>>(name.get(), flags, bytes, bad.get());
            ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
            EXPECT_EQ(bad[0], 0);
            std::vector<std::uint8_t> wanted(bytes);
            for (std::size_t i = 0; i < 100 && i < bytes; ++i)
                wanted[i] = static_cast<std::uint8_t>(i + 1);
            EXPECT_EQ(bytes_on_disk(folder / "out"), wanted)
                << "flags " << flags << ", " << bytes << " bytes";
        }
    }
}

TEST(device_gpufs, addresses_of_others_are_refused) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(4, 8 * FS_BLOCKSIZE));
    options o = gpu_options(folder);
    o.page_bytes = FS_BLOCKSIZE;
    const auto rt = make_runtime(o);
    ASSERT_EQ(gpufs_attach(*rt), 0);
    const device_text name("data");
    const device_counters addresses(2), words(3);
    const shared_array<int> results(refusal_count);
    unmap_what_is_not_ours<<<2, 64>>>(name.get(), addresses.get(),
                                      reinterpret_cast<int*>(words.get()), results.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(reinterpret_cast<const int*>(words.read().data())[2], 0)
        << "each block ended and had its own page to the end";
    for (int i = 0; i < refusal_count; ++i) EXPECT_EQ(results[i], -EINVAL) << i;
}

TEST(device_gpufs, more_mappings_than_a_block_may_have) {
    PENSTOCK_NEEDS_GPU();
    const temporary_folder folder;
    write_file(folder / "data", pattern(4, 2 * FS_BLOCKSIZE));
    options o = gpu_options(folder);
    o.page_bytes = FS_BLOCKSIZE;
    const auto rt = make_runtime(o);
    ASSERT_EQ(gpufs_attach(*rt), 0);
    const device_text name("data");
    const shared_array<int> results(4);
    map_too_many<<<1, 32>>>(name.get(), results.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(results[0], 128);
    EXPECT_EQ(results[1], 64) << "those of the first page, and no others";
    EXPECT_EQ(results[2], 64);
    EXPECT_EQ(results[3], 0) << "there is room again";
}

TEST(device_gpufs, first_and_last_block) {
    PENSTOCK_NEEDS_GPU();
    const device_counters memory(4);
    auto* const words = reinterpret_cast<int*>(memory.get());
    auto* const locks = reinterpret_cast<int*>(memory.get() + 2);
    count_blocks<<<64, 64>>>(reinterpret_cast<INIT_LOCK*>(locks),
                             reinterpret_cast<LAST_SEMAPHORE*>(locks + 1), words);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const auto read = memory.read();
    const int* const counts = reinterpret_cast<const int*>(read.data());
    EXPECT_EQ(counts[0], 1) << "one block was the first";
    EXPECT_EQ(counts[2], 64) << "all saw what it did";
    EXPECT_EQ(counts[3], 64) << "the last one saw what all did";
}

}  // namespace penstock::test
