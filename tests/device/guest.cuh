// What the tests share that look at Penstock as a guest in a program with CUDA work of its own.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "device/support.cuh"
#include "penstock/buffer.hpp"

namespace penstock::test {

inline constexpr std::uint64_t guest_file_bytes = 4 << 20;  // 16 times the cache

// Word `i` of a guest's file; never 0.
PENSTOCK_HD inline std::uint32_t guest_word(std::uint64_t version, std::uint64_t i) {
    return static_cast<std::uint32_t>(mix64(i) << 8 | 0x40 | (version & 0x3f));
}

inline void write_guest_file(const std::string& path, std::uint64_t version,
                             std::uint64_t bytes = guest_file_bytes) {
    std::vector<std::uint8_t> all(bytes);
    for (std::uint64_t i = 0; i < bytes / 4; ++i) {
        const std::uint32_t word = guest_word(version, i);
        std::memcpy(&all[i * 4], &word, 4);
    }
    write_file(path, all);
}

// What the readers of a kernel met.
struct guest_counts {
    unsigned long long reads = 0, words = 0, wrong = 0, zeros = 0, short_reads = 0;
    unsigned long long stale = 0, cancelled = 0, other_errors = 0;
    long long last_error = 0;
};

// A group that reads at random until a call ends with -ECANCELED, `deadline_ns` have passed, or
// `most` were made. Of a file of which `span` bytes are read, in any of the versions below
// `versions`.
struct guest_reader {
    const char* name;
    std::uint64_t span, versions, deadline_ns, most;
    guest_counts* counts;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        const int fd = open(g, fs, name);
        if (fd < 0) return note(g, fd);
        const std::uint64_t begun = g.now_ns();
        for (std::uint64_t i = 0; i < most && g.now_ns() - begun < deadline_ns; ++i) {
            const std::uint64_t at = mix64(index * 1000003 + i) % (span / 128) * 128;
            if (!read_once(g, fs, fd, at)) break;
        }
        close(g, fs, fd);
    }

    template <typename Group>
    PENSTOCK_HD bool read_once(const Group& g, const runtime_ref& fs, int fd,
                               std::uint64_t at) const {
        std::uint32_t* const words = room();
        const std::int64_t got = read(g, fs, fd, words, 128, static_cast<std::int64_t>(at));
        if (got < 0) note(g, got);
        if (got < 0) return got != -ECANCELED;
        g.sync();
        unsigned long long wrong = 0, zeros = 0;
        for (std::uint64_t i = g.rank(); i < static_cast<std::uint64_t>(got) / 4; i += g.size()) {
            bool known = false;
            for (std::uint64_t version = 0; version < versions; ++version)
                known = known || words[i] == guest_word(version, at / 4 + i);
            if (!known) ++wrong;
            if (words[i] == 0) ++zeros;
        }
#if defined(__CUDA_ARCH__)
        if (wrong != 0) atomicAdd(&counts->wrong, wrong);
        if (zeros != 0) atomicAdd(&counts->zeros, zeros);
        if (g.is_leader()) {
            atomicAdd(&counts->reads, 1ull);
            atomicAdd(&counts->words, static_cast<unsigned long long>(got / 4));
            if (got < 128) atomicAdd(&counts->short_reads, 1ull);
        }
#endif
        g.sync();
        return true;
    }

    PENSTOCK_HD static std::uint32_t* room() {
#if defined(__CUDA_ARCH__)
        __shared__ std::uint32_t words[32][32];
        return words[threadIdx.x / 32];
#else
        static thread_local std::uint32_t words[32];
        return words;
#endif
    }

    template <typename Group>
    PENSTOCK_HD void note(const Group& g, std::int64_t code) const {
#if defined(__CUDA_ARCH__)
        if (!g.is_leader()) return;
        atomicAdd(code == -ESTALE      ? &counts->stale
                  : code == -ECANCELED ? &counts->cancelled
                                       : &counts->other_errors,
                  1ull);
        if (code != -ESTALE && code != -ECANCELED) counts->last_error = code;
#endif
    }
};

// Counts in device memory.
class guest_result {
public:
    guest_result() {
        if (cudaMalloc(&counts_, sizeof *counts_) != cudaSuccess) std::abort();
        const guest_counts none;
        cudaMemcpy(counts_, &none, sizeof none, cudaMemcpyHostToDevice);
        cudaStreamSynchronize(nullptr);  // the runtime's stream does not wait for the copy
    }
    ~guest_result() { cudaFree(counts_); }
    guest_result(const guest_result&) = delete;
    guest_result& operator=(const guest_result&) = delete;
    [[nodiscard]] guest_counts* get() const { return counts_; }
    [[nodiscard]] guest_counts read() const {
        guest_counts out;
        cudaMemcpy(&out, counts_, sizeof out, cudaMemcpyDeviceToHost);
        return out;
    }

private:
    guest_counts* counts_ = nullptr;
};

inline options guest_options(const temporary_folder& folder) {
    options o = gpu_options(folder);
    o.writable = true;
    o.log = [](const std::string& line) { std::printf("    log: %s\n", line.c_str()); };
    return o;
}

// Every call of the host that makes CUDA calls. Made before, and what they need: nothing here
// allocates by CUDA calls of the test.
class guest_calls {
public:
    explicit guest_calls(const temporary_folder& folder)
        : folder_(folder), indices_(1000), out_(1000 * 128) {
        write_guest_file(folder / "data", 0);
        write_guest_file(folder / "out", 0);
        for (std::size_t i = 0; i < 1000; ++i) indices_[i] = mix64(i) % (guest_file_bytes / 128);
        cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
        let_files_settle();
    }
    ~guest_calls() { cudaStreamDestroy(stream_); }

    // What went wrong, or an empty text.
    std::string make() {
        std::unique_ptr<runtime> rt;
        if (const status s = runtime::make(guest_options(folder_), rt); !s.ok())
            return "make: " + s.message;
        std::string wrong = use(*rt);
        if (wrong.empty()) wrong = use_pool();
        return wrong;
    }

    std::string use(runtime& rt) {
        std::vector<std::uint32_t> words(guest_file_bytes / 4);
        const auto bytes = static_cast<std::int64_t>(guest_file_bytes);
        const int fd = rt.open(folder_ / "data");
        if (fd < 0) return failed("open", fd);
        if (const std::int64_t got = rt.read(fd, words.data(), bytes, 0); got != bytes)
            return failed("read", got);
        for (std::uint64_t i = 0; i < words.size(); ++i)
            if (words[i] != guest_word(0, i)) return "a wrong word was read";
        if (const std::int64_t inside = rt.open_windows(fd); inside < 0 && inside != -EOPNOTSUPP)
            return failed("open_windows", inside);
        for (const gather_order order : {gather_order::as_given, gather_order::by_span})
            if (const std::int64_t rows =
                    rt.gather(fd, {128}, indices_.get(), 1000, out_.get(), {order});
                rows != 1000)
                return failed("gather", rows);
        file_stat facts{};
        if (const int code = rt.stat(fd, &facts); code != 0) return failed("stat", code);
        if (const std::int64_t code = rt.prefetch(fd, 0, 65536); code < 0)
            return failed("prefetch", code);
        if (const int code = rt.close(fd); code != 0) return failed("close", code);
        rt.close_windows();
        if (std::string wrong = write(rt); !wrong.empty()) return wrong;
        if (std::string wrong = map(rt); !wrong.empty()) return wrong;
        if (rt.stats().errors != 0) return "the runtime counts errors";
        const status health = rt.health();
        return health.ok() ? "" : "health: " + health.message;
    }

    std::string write(runtime& rt) {
        const int fd = rt.open(folder_ / "out", open_read_write);
        if (fd < 0) return failed("open to write", fd);
        const std::uint32_t word = guest_word(0, 5);
        if (const std::int64_t put = rt.write(fd, &word, 4, 20); put != 4)
            return failed("write", put);
        if (const int code = rt.fsync(fd); code != 0) return failed("fsync", code);
        const int code = rt.close(fd);
        return code == 0 ? "" : failed("close of a written file", code);
    }

    std::string map(runtime& rt) {
        std::unique_ptr<file_region> region;
        if (const status s =
                map_region(rt, folder_ / "out", 0, 0, protection::read_write, {}, region);
            !s.ok())
            return "map_region: " + s.message;
        if (const std::int64_t code = region->acquire(stream_); code < 0)
            return failed("acquire", code);
        if (const std::int64_t code = region->release(stream_); code < 0)
            return failed("release", code);
        const int code = region->close(stream_);
        return code == 0 ? map_in_place(rt) : failed("close of a region", code);
    }

    std::string map_in_place(runtime& rt) {
        std::unique_ptr<file_region> region;
        if (const status s = map_region(rt, folder_ / "data", 0, 0, protection::read,
                                        {.placement = region_placement::in_place}, region);
            !s.ok())
            return "map_region in place: " + s.message;
        if (const std::int64_t code = region->acquire(stream_); code < 0)
            return failed("acquire in place", code);
        const int code = region->close(stream_);
        return code == 0 ? "" : failed("close of a region in place", code);
    }

    std::string use_pool() {
        buffer_options pool_options;
        pool_options.where = backend::gpu;
        pool_options.host_bytes = 1 << 20;
        pool_options.device_bytes = 4 << 20;
        pool_options.sessions = 2;
        std::unique_ptr<buffer_pool> pool;
        if (const status s = buffer_pool::make(pool_options, pool); !s.ok())
            return "pool: " + s.message;
        std::uint32_t file = 0;
        if (const status s = pool->open_file(folder_ / "data", buffer::file_access::read, file);
            !s.ok())
            return "pool: " + s.message;
        const auto session = pool->open_session();
        if (session == nullptr) return "no session of the pool";
        for (std::uint64_t i = 0; i < 2; ++i)
            for (std::uint64_t page = 0; page < guest_file_bytes / 4096; ++page) {
                std::uint32_t word = 0;
                if (session->read(file, page * 4096, reinterpret_cast<std::byte*>(&word), 4) != 4 ||
                    word != guest_word(0, page * 1024))
                    return "the pool gave a wrong word";
            }
        return "";
    }

private:
    static std::string failed(const char* call, std::int64_t code) {
        return std::string(call) + ": " + error_text(code);
    }

    const temporary_folder& folder_;
    const shared_array<std::uint64_t> indices_;
    const shared_array<std::uint8_t> out_;
    cudaStream_t stream_ = nullptr;
};

template <typename Counter>
__global__ void touch(Counter* counter) {
    atomicAdd(counter, 1);
}

inline const std::pair<const char*, cudaStreamCaptureMode> capture_modes[] = {
    {"global", cudaStreamCaptureModeGlobal},
    {"thread_local", cudaStreamCaptureModeThreadLocal},
    {"relaxed", cudaStreamCaptureModeRelaxed}};

// A program that captures two launches into a graph and runs it, and does something between the
// two.
class capturing_program {
public:
    // Blocking streams are those with which the legacy stream waits.
    explicit capturing_program(bool blocking) : counter_(1) {
        cudaStreamCreateWithFlags(&stream_, blocking ? cudaStreamDefault : cudaStreamNonBlocking);
        touch<<<1, 1, 0, stream_>>>(counter_.get());
        cudaStreamSynchronize(stream_);
    }
    ~capturing_program() { cudaStreamDestroy(stream_); }
    [[nodiscard]] cudaStream_t stream() const { return stream_; }

    void capture(cudaStreamCaptureMode mode, const std::function<void()>& meanwhile) {
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t program = nullptr;
        counter_[0] = 0;
        ASSERT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
        touch<<<1, 1, 0, stream_>>>(counter_.get());
        meanwhile();
        touch<<<1, 1, 0, stream_>>>(counter_.get());
        EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
        ASSERT_NE(graph, nullptr);
        ASSERT_EQ(cudaGraphInstantiate(&program, graph, 0), cudaSuccess);
        ASSERT_EQ(cudaGraphLaunch(program, stream_), cudaSuccess);
        ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
        EXPECT_EQ(counter_[0], 2);
        cudaGraphExecDestroy(program);
        cudaGraphDestroy(graph);
        EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    }

private:
    const shared_array<int> counter_;
    cudaStream_t stream_ = nullptr;
};

// A test that breaks the process's context runs in a process of its own, and ends it with 7. What
// it prints on standard output is seen.
template <typename Body>
[[noreturn]] void end_with(const Body& body) {
    const std::string wrong = body();
    std::printf("    %s\n", wrong.empty() ? "as it should be" : wrong.c_str());
    std::fflush(stdout);
    std::exit(wrong.empty() ? 7 : 1);
}

}  // namespace penstock::test
