// Serves a directory through the installed Penstock::mount: mounter SOURCE POINT FILE. Prints FILE
// of SOURCE as read from the mount, and leaves a copy that it wrote through the mount as FILE.copy.
// Status 77: this machine mounts nothing.
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>

#include <penstock/penstock.hpp>

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    if (::access("/dev/fuse", R_OK | W_OK) != 0)
        return std::fprintf(stderr, "SKIP: /dev/fuse cannot be opened here\n"), 77;
    penstock::options settings;
    settings.where = penstock::backend::cpu;
    settings.cache_bytes = 1 << 20;
    std::unique_ptr<penstock::runtime> rt;
    if (const penstock::status made = penstock::runtime::make(settings, rt); !made.ok())
        return std::fprintf(stderr, "%s\n", made.message.c_str()), 1;
    std::unique_ptr<penstock::buffer_pool> pool;
    if (const penstock::status made = penstock::buffer_pool::make(
            {.policy = penstock::buffer::policy_kind::native, .host_bytes = 4 << 20, .sessions = 4},
            pool);
        !made.ok())
        return std::fprintf(stderr, "%s\n", made.message.c_str()), 1;
    std::unique_ptr<penstock::file_mount> served;
    if (const penstock::status mounted =
            penstock::mount_directory(*rt, argv[1], argv[2], {.buffer = pool.get()}, served);
        !mounted.ok()) {
        const bool forbidden = mounted.code == -EPERM || mounted.code == -ENODEV;
        return std::fprintf(stderr, "%s%s\n", forbidden ? "SKIP: " : "", mounted.message.c_str()),
               forbidden ? 77 : 1;
    }
    const std::string file = std::string(argv[2]) + "/" + argv[3];
    std::ifstream in(file, std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(in), {}};
    std::ofstream(file + ".copy", std::ios::binary) << content;
    std::fwrite(content.data(), 1, content.size(), stdout);
    if (served->report().requests == 0)
        return std::fprintf(stderr, "the mount served no request\n"), 1;
    return served->unmount() == 0 && !served->is_mounted() ? 0 : 1;
}
