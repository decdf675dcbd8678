// Plain C++: reads a file through the installed library on CPU threads and prints its bytes.
#include <cstdio>
#include <vector>

#include <penstock/penstock.hpp>

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    penstock::options settings;
    settings.where = penstock::backend::cpu;
    settings.cache_bytes = 1 << 20;
    std::unique_ptr<penstock::runtime> rt;
    if (const penstock::status made = penstock::runtime::make(settings, rt); !made.ok())
        return std::fprintf(stderr, "%s\n", made.message.c_str()), 1;
    const int fd = rt->open(argv[1]);
    std::vector<char> buffer(100000);
    const std::int64_t bytes =
        rt->read(fd, buffer.data(), static_cast<std::int64_t>(buffer.size()), 0);
    if (bytes < 0) return std::fprintf(stderr, "%s\n", penstock::error_text(bytes).c_str()), 1;
    std::fwrite(buffer.data(), 1, static_cast<std::size_t>(bytes), stdout);
    return rt->close(fd) == 0 ? 0 : 1;
}
