// Closed libraries on files, unchanged: 05_libraries FOLDER [N [REPEATS]]. cuBLAS multiplies two
// matrices that are files, its result is a file, and CUB adds that up. Then the same calls on plain
// device memory: the bytes must be the same, and the times are printed side by side. Needs a GPU.
#include <algorithm>
#include <vector>

#include <cub/device/device_reduce.cuh>
#include <cublas_v2.h>

#include <penstock/region.hpp>

#include "support.hpp"

struct matrices {
    const float* a;
    const float* b;
    float* c;
};

// Milliseconds on the GPU; negative: it failed.
template <typename Work>
float time_of(const Work& work) {
    cudaEvent_t begun = nullptr, ended = nullptr;
    float ms = -1;
    if (cudaEventCreate(&begun) != cudaSuccess || cudaEventCreate(&ended) != cudaSuccess) return -1;
    cudaEventRecord(begun);
    const bool done = work();
    cudaEventRecord(ended);
    if (!done || cudaEventSynchronize(ended) != cudaSuccess ||
        cudaEventElapsedTime(&ms, begun, ended) != cudaSuccess)
        ms = -1;
    cudaEventDestroy(begun);
    cudaEventDestroy(ended);
    return ms;
}

// What a user of these libraries writes, whatever the pointers are.
class libraries {
public:
    explicit libraries(int n) : n_(n) {
        ready_ = cublasCreate(&handle_) == CUBLAS_STATUS_SUCCESS &&
                 cudaMalloc(&sum_, sizeof(float)) == cudaSuccess &&
                 cub::DeviceReduce::Sum(nullptr, scratch_bytes_, static_cast<const float*>(nullptr),
                                        sum_, count()) == cudaSuccess &&
                 cudaMalloc(&scratch_, scratch_bytes_) == cudaSuccess;
    }
    ~libraries() {
        cublasDestroy(handle_);
        cudaFree(sum_);
        cudaFree(scratch_);
    }
    bool ready() const { return ready_; }
    int count() const { return n_ * n_; }
    float multiply(const matrices& m) const {
        const float alpha = 1, beta = 0;
        return time_of([&] {
            return cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, n_, n_, n_, &alpha, m.a, n_, m.b,
                               n_, &beta, m.c, n_) == CUBLAS_STATUS_SUCCESS;
        });
    }
    float add_up(const matrices& m, float& sum) {
        const float ms = time_of([&] {
            return cub::DeviceReduce::Sum(scratch_, scratch_bytes_, m.c, sum_, count()) ==
                   cudaSuccess;
        });
        return cudaMemcpy(&sum, sum_, sizeof sum, cudaMemcpyDeviceToHost) == cudaSuccess ? ms : -1;
    }

private:
    int n_;
    bool ready_ = false;
    cublasHandle_t handle_ = nullptr;
    float* sum_ = nullptr;
    void* scratch_ = nullptr;
    std::size_t scratch_bytes_ = 0;
};

bool write_numbers(const std::string& path, std::uint64_t count, std::uint32_t seed) {
    std::vector<float> numbers(count);
    for (float& number : numbers)
        number = static_cast<float>((seed = seed * 1664525 + 1013904223) >> 16) / 65536.0f - 0.5f;
    std::FILE* const out = std::fopen(path.c_str(), "wb");
    const bool all =
        out != nullptr && std::fwrite(numbers.data(), sizeof(float), count, out) == count;
    return (out != nullptr && std::fclose(out) == 0) && all;
}

float median(std::vector<float> times) {
    std::sort(times.begin(), times.end());
    return times.front() < 0 ? -1 : times[times.size() / 2];
}

int fail(const std::string& message) { return std::fprintf(stderr, "%s\n", message.c_str()), 1; }

int main(int argc, char** argv) {
    const int n = argc > 2 ? std::atoi(argv[2]) : 1024, repeats = argc > 3 ? std::atoi(argv[3]) : 5;
    if (argc < 2 || argc > 4 || n < 1 || n > 32768 || repeats < 1)
        return std::fprintf(stderr, "usage: 05_libraries FOLDER [N up to 32768 [REPEATS]]\n"), 2;
    const auto rt = make_runtime(true);
    if (rt == nullptr) return 1;
    if (rt->where() != penstock::backend::gpu)
        return std::fprintf(stderr, "SKIP: no GPU here for cuBLAS\n"), 77;
    const std::uint64_t count = std::uint64_t(n) * n, bytes = count * sizeof(float);
    const std::string folder = argv[1], names[3] = {folder + "/a", folder + "/b", folder + "/c"};
    for (std::uint32_t i = 0; i < 3; ++i)
        if (!write_numbers(names[i], count, i))
            return fail(names[i] + " cannot be written; name a folder that can");

    // Each file as a plain pointer.
    std::unique_ptr<penstock::file_region> file[3];
    for (int i = 0; i < 3; ++i) {
        const auto access = i == 2 ? penstock::protection::read_write : penstock::protection::read;
        if (const penstock::status s =
                penstock::map_region(*rt, names[i], 0, 0, access, {}, file[i]);
            !s)
            return fail(s.message);
    }
    const matrices files{static_cast<const float*>(file[0]->data()),
                         static_cast<const float*>(file[1]->data()),
                         static_cast<float*>(file[2]->data())};
    float* plain[3] = {};
    for (int i = 0; i < 3; ++i)
        if (cudaMalloc(&plain[i], bytes) != cudaSuccess ||
            cudaMemcpy(plain[i], file[i]->data(), bytes, cudaMemcpyDeviceToDevice) != cudaSuccess)
            return fail("the device has no room for the copies; give a smaller N");
    const matrices memory{plain[0], plain[1], plain[2]};

    libraries work(n);
    if (!work.ready()) return fail("cuBLAS or CUB could not be made ready");
    std::vector<float> times[4];  // multiply and add up: on the files, in memory
    float sums[2] = {};
    for (int i = -1; i < repeats; ++i) {  // the first is not counted
        float now[4] = {work.multiply(files), work.multiply(memory)};
        // The sum right after a product is slower, wherever its numbers lie, so it is not counted.
        now[2] = work.add_up(files, sums[0]);
        for (const int which : {i & 1, 1 - (i & 1)})
            now[2 + which] = work.add_up(which == 0 ? files : memory, sums[which]);
        for (int k = 0; i >= 0 && k < 4; ++k) times[k].push_back(now[k]);
    }
    if (file[2]->release() < 0) return fail(names[2] + " could not be written");
    std::vector<char> written(bytes), expected(bytes);
    std::FILE* const in = std::fopen(names[2].c_str(), "rb");
    if (in == nullptr || std::fread(written.data(), 1, bytes, in) != bytes)
        return fail(names[2] + " cannot be read");
    std::fclose(in);
    if (cudaMemcpy(expected.data(), plain[2], bytes, cudaMemcpyDeviceToHost) != cudaSuccess ||
        written != expected || std::memcmp(&sums[0], &sums[1], sizeof(float)) != 0)
        return fail(names[2] + " is not what cuBLAS gives in plain memory");
    for (int i = 0; i < 3; ++i) cudaFree(plain[i]);
    const float on_files = median(times[0]), in_memory = median(times[1]),
                sum_files = median(times[2]), sum_memory = median(times[3]);
    if (std::min({on_files, in_memory, sum_files, sum_memory}) < 0) return fail("a library failed");
    std::printf(
        "cublasSgemm %d x %d: %.3f ms on files, %.3f ms in plain memory, %.1f %% of its speed\n", n,
        n, on_files, in_memory, 100 * in_memory / on_files);
    std::printf(
        "cub::DeviceReduce::Sum of %d: %.4f ms on the file, %.4f ms in plain memory, %.1f %% of "
        "its speed\n",
        work.count(), sum_files, sum_memory, 100 * sum_memory / sum_files);
}
