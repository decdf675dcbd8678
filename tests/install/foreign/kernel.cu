// CUDA: a kernel over the installed headers. Prints the bytes of a file as a GPU warp read them;
// status 77: no GPU.
#include <cstdio>
#include <cstring>

#include <penstock/penstock.hpp>

__global__ void read_file(penstock::runtime_ref fs, const char* path, char* out, std::int64_t room,
                          std::int64_t* bytes) {
    const auto warp = penstock::this_warp();
    const int fd = penstock::open(warp, fs, path);
    *bytes = penstock::read(warp, fs, fd, out, room, 0);
    penstock::close(warp, fs, fd);
}

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    penstock::options settings;
    settings.where = penstock::backend::gpu;
    settings.cache_bytes = 16 << 20;
    std::unique_ptr<penstock::runtime> rt;
    if (const penstock::status made = penstock::runtime::make(settings, rt); !made.ok())
        return std::fprintf(stderr, "SKIP: %s\n", made.message.c_str()),
               made.code == -ENODEV ? 77 : 1;
    if (rt->allow(argv[1]) != 0) return 1;
    constexpr std::int64_t room = 100000;
    char *path = nullptr, *out = nullptr;
    std::int64_t* bytes = nullptr;
    if (cudaMallocManaged(&path, 4096) != cudaSuccess ||
        cudaMallocManaged(&out, room) != cudaSuccess ||
        cudaMallocManaged(&bytes, sizeof *bytes) != cudaSuccess)
        return 1;
    std::strncpy(path, argv[1], 4095);
    read_file<<<1, 32>>>(rt->ref(), path, out, room, bytes);
    if (cudaDeviceSynchronize() != cudaSuccess || *bytes < 0) return 1;
    std::fwrite(out, 1, static_cast<std::size_t>(*bytes), stdout);
}
