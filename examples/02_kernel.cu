// The same count in a kernel of one's own, which opens the file itself: 02_kernel FILE. Needs a
// GPU.
#include "support.hpp"

__global__ void count_lines(penstock::runtime_ref fs, const char* path, unsigned long long* lines) {
    __shared__ char text[8][4096];  // a piece for each of the block's 8 warps
    const auto warp = penstock::this_warp();
    const unsigned w = threadIdx.x / 32;
    const int fd = penstock::open(warp, fs, path);  // asks the host once for all the warps
    unsigned long long found = 0;
    for (std::int64_t at = 4096ll * (blockIdx.x * 8 + w);; at += 4096ll * 8 * gridDim.x) {
        const std::int64_t bytes = penstock::read(warp, fs, fd, text[w], 4096, at);
        if (bytes <= 0) break;  // the end of the file, or a negative errno
        for (std::int64_t i = warp.rank(); i < bytes; i += 32) found += text[w][i] == '\n';
        warp.sync();  // all have counted before the next piece comes
    }
    penstock::close(warp, fs, fd);
    atomicAdd(lines, found);
}

int main(int argc, char** argv) {
    if (argc != 2) return std::fprintf(stderr, "usage: 02_kernel FILE\n"), 2;
    const auto rt = make_runtime();
    if (rt == nullptr) return 1;
    if (rt->where() != penstock::backend::gpu)
        return std::fprintf(stderr, "SKIP: no GPU here to run a kernel on\n"), 77;
    if (const int code = rt->allow(argv[1]); code != 0)
        return std::fprintf(stderr, "%s: %s\n", argv[1], penstock::error_text(code).c_str()), 1;

    const shared_array<char> path(*rt, std::strlen(argv[1]) + 1);
    const shared_array<unsigned long long> lines(*rt, 1);
    std::strcpy(path.data(), argv[1]);
    count_lines<<<64, 256>>>(rt->ref(), path.data(), lines.data());
    const cudaError_t ran = cudaDeviceSynchronize();
    if (ran != cudaSuccess || rt->stats().errors != 0)
        return std::fprintf(stderr, "%s could not be read: %s\n", argv[1], cudaGetErrorString(ran)),
               1;
    std::printf("%llu %s\n", lines[0], argv[1]);
}
