// A kernel that writes its result to a file: 04_write FILE. Needs a GPU.
#include <penstock/write.hpp>

#include "support.hpp"

// Every warp writes rows of a table of squares; the file has them when the last warp has closed it.
__global__ void save_squares(penstock::runtime_ref fs, const char* path, std::uint64_t rows) {
    __shared__ std::uint64_t row[8][512];
    const auto warp = penstock::this_warp();
    const unsigned w = threadIdx.x / 32;
    const int fd = penstock::open(warp, fs, path, penstock::open_write | penstock::open_create);
    for (std::uint64_t r = blockIdx.x * 8 + w; r < rows; r += 8 * gridDim.x) {
        for (unsigned i = warp.rank(); i < 512; i += 32) row[w][i] = (r * 512 + i) * (r * 512 + i);
        penstock::write(warp, fs, fd, row[w], 4096, 4096 * r);
    }
    penstock::close(warp, fs, fd);  // an error of the disk shows here, or in fsync
}

int main(int argc, char** argv) {
    if (argc != 2) return std::fprintf(stderr, "usage: 04_write FILE\n"), 2;
    const auto rt = make_runtime(true);
    if (rt == nullptr) return 1;
    if (rt->where() != penstock::backend::gpu)
        return std::fprintf(stderr, "SKIP: no GPU here to run a kernel on\n"), 77;
    const std::string file = std::string(argv[1]) + ".squares";
    // Held open by the host, so that the file is closed for the last time when the whole kernel is
    // over.
    const int held =
        rt->open(file, penstock::open_write | penstock::open_create | penstock::open_truncate);
    if (held < 0)
        return std::fprintf(stderr, "%s: %s\n", file.c_str(), penstock::error_text(held).c_str()),
               1;

    const shared_array<char> path(*rt, file.size() + 1);
    std::strcpy(path.data(), file.c_str());
    save_squares<<<64, 256>>>(rt->ref(), path.data(), 1000);
    const cudaError_t ran = cudaDeviceSynchronize();
    const int closed = rt->close(held);
    if (ran != cudaSuccess || closed != 0 || rt->stats().errors != 0)
        return std::fprintf(stderr, "%s could not be written: %s, %s\n", file.c_str(),
                            cudaGetErrorString(ran), penstock::error_text(closed).c_str()),
               1;
    std::FILE* const in = std::fopen(file.c_str(), "rb");
    std::uint64_t number = 0, wrong = 0, found = 0;
    for (; in != nullptr && std::fread(&number, sizeof number, 1, in) == 1; ++found)
        wrong += number != found * found ? 1 : 0;
    if (in != nullptr) std::fclose(in);
    std::remove(file.c_str());
    if (found != 512000 || wrong != 0)
        return std::fprintf(stderr, "%s: %llu numbers, %llu of them wrong\n", file.c_str(),
                            (unsigned long long)found, (unsigned long long)wrong),
               1;
    std::printf("%llu squares written\n", (unsigned long long)found);
}
