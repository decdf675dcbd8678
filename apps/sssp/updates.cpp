// The mount of the graph's folder; the updater, and how a run starts it and waits for it.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "common/threads.hpp"
#include "made_numbers.hpp"
#include "mount/mount.hpp"
#include "session.hpp"

namespace penstock::sssp {

namespace {

namespace fs = std::filesystem;

bool lies_in(const fs::path& inner, const fs::path& outer) {
    const fs::path rest = inner.lexically_relative(outer);
    return !rest.empty() && *rest.begin() != "..";
}

}  // namespace

mounted_folder::mounted_folder() = default;

mounted_folder::~mounted_folder() {
    if (const status s = close(); !s) apps::say(s.message);
}

// A mount point must not lie in what is mounted there, and graphs may lie in the usual folder for
// temporary things.
status mounted_folder::make_point(const std::string& folder) {
    const char* const wanted = std::getenv("TMPDIR");
    for (const std::string& parent :
         {std::string(wanted != nullptr ? wanted : ""), std::string("/tmp"),
          std::string("/var/tmp"), std::string("/dev/shm")}) {
        std::error_code failed;
        const fs::path real = parent.empty() ? fs::path() : fs::canonical(parent, failed);
        if (real.empty() || failed || lies_in(real, folder)) continue;
        const apps::signal_pause until_noted;
        std::string name = (real / "penstock-sssp.XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) continue;
        point_ = name;
        own_point_ = true;
        noted_point_.folder(name);
        return {};
    }
    return {-ENOENT, "there is no folder for temporary things outside of " + apps::shown(folder) +
                         ", where the graph lies; name an empty folder elsewhere by --mount, or "
                         "give --no-mount"};
}

status mounted_folder::open(runtime& rt, const std::string& folder, const std::string& point) {
    if (status s = mount::can_mount(); !s)
        return {s.code, s.message +
                            "; or give --no-mount: the updater then writes the file itself, and "
                            "all of it is brought each time"};
    point_ = point;
    if (point.empty())
        if (status s = make_point(folder); !s) return s;
    const apps::signal_pause until_noted;
    status s = mount_directory(rt, folder, point_, {}, mount_);
    if (s.ok()) noted_mount_.mount(point_);
    if (!s.ok()) s.message = "--mount: " + s.message + "; or give --no-mount";
    return s;
}

status mounted_folder::close() {
    status ended;
    if (mount_ != nullptr)
        if (const int code = mount_->unmount(); code != 0)
            ended = {code, "the mount at " + apps::shown(point_) + ": " + error_text(code) +
                               "; take it away with: " + mount::unmount_command(point_)};
    mount_.reset();
    noted_mount_.forget();
    noted_point_.forget();
    if (own_point_) ::rmdir(point_.c_str());
    own_point_ = false;
    return ended;
}

namespace {

constexpr std::uint64_t most_pages_at_once = 256;

class updater {
public:
    explicit updater(const update_request& request) : request_(request) {}
    ~updater() {
        if (mapped_ != nullptr) ::munmap(mapped_, bytes_);
    }
    updater(const updater&) = delete;
    updater& operator=(const updater&) = delete;

    status run() {
        if (status s = open(); !s) return s;
        const page_choice chosen(shape_.edge_pages(), request_.percent, request_.seed,
                                 request_.round);
        const auto threads = static_cast<std::uint32_t>(
            std::clamp<std::uint64_t>(chosen.count(), 1, request_.threads));
        apps::first_error errors;
        apps::on_threads(threads, [&](std::uint32_t i) {
            const std::uint64_t count = chosen.count();
            errors.note(change(chosen, count * i / threads, count * (i + 1) / threads));
        });
        return errors.get();
    }

private:
    status failed(const char* doing) const {
        return {-errno, std::string("update: ") + apps::shown(request_.file) + ": " + doing + ": " +
                            error_text(-errno) + "; name a graph that you may write"};
    }

    status open() {
        graph_file graph;
        if (status s = open_graph(request_.file, graph); !s) return s;
        shape_ = graph.shape;
        bytes_ = shape_.file_bytes();
        start_ = weights_of_round(request_.seed, request_.round);
        fd_ = apps::unique_fd(::open(request_.file.c_str(), O_RDWR | O_CLOEXEC));
        if (fd_ < 0) return failed("open");
        if (!request_.by_store) return {};
        void* const at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
        if (at == MAP_FAILED) return failed("mmap");
        mapped_ = static_cast<char*>(at);
        return {};
    }

    // One thread's part of the chosen pages. Those that follow each other are changed together.
    status change(const page_choice& chosen, std::uint64_t first, std::uint64_t end) const {
        std::vector<edge> room;
        for (std::uint64_t i = first, next = first; i < end; i = next) {
            const std::uint64_t page = chosen.page(i);
            for (next = i + 1; next < end && next - i < most_pages_at_once &&
                               chosen.page(next) == page + (next - i);)
                ++next;
            const std::uint64_t begin = page * edges_of_page,
                                count = std::min((page + next - i) * edges_of_page, shape_.edges) -
                                        begin;
            const std::uint64_t offset = shape_.edges_at() + begin * sizeof(edge);
            if (mapped_ != nullptr) {
                set_weights(reinterpret_cast<edge*>(mapped_ + offset), begin, count);
                continue;
            }
            room.resize(count);
            const std::uint64_t bytes = count * sizeof(edge);
            if (status s = apps::read_exactly(path(), fd_, room.data(), bytes, offset); !s)
                return s;
            set_weights(room.data(), begin, count);
            if (status s = apps::write_exactly(path(), fd_, room.data(), bytes, offset); !s)
                return s;
        }
        return {};
    }
    void set_weights(edge* edges, std::uint64_t begin, std::uint64_t count) const {
        for (std::uint64_t i = 0; i < count; ++i) edges[i].weight = weight_of(start_, begin + i);
    }

    [[nodiscard]] const std::string& path() const { return request_.file; }

    const update_request& request_;
    graph_shape shape_;
    std::uint64_t bytes_ = 0, start_ = 0;
    apps::unique_fd fd_;
    char* mapped_ = nullptr;
};

// In the program that computes: starting the updater and waiting for it.

constexpr auto longest_update = std::chrono::minutes(10);
constexpr auto between_looks = std::chrono::microseconds(200);

status start(const update_request& request, pid_t& child) {
    std::vector<std::string> words = {"penstock-sssp",
                                      "update",
                                      request.file,
                                      "--percent",
                                      apps::text_of("%.17g", request.percent),
                                      "--seed",
                                      std::to_string(request.seed),
                                      "--round",
                                      std::to_string(request.round),
                                      "--by",
                                      request.by_store ? "store" : "write",
                                      "--workers",
                                      std::to_string(request.threads)};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int code =
        ::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ);
    return code == 0 ? status{}
                     : status{-code, "the updater cannot be started: " + error_text(-code) +
                                         "; end some programs"};
}

// It is gone when this returns.
status kill_it(pid_t child, status why) {
    ::kill(child, SIGKILL);
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    return why;
}

}  // namespace

status update_weights(const update_request& request) { return updater(request).run(); }

status run_updater(const update_request& request) {
    pid_t child = -1;
    apps::leftover noted;
    {
        const apps::signal_pause until_noted;
        if (status s = start(request, child); !s) return s;
        noted.process(child);
    }
    const auto deadline = std::chrono::steady_clock::now() + longest_update;
    int ended = 0;
    for (;;) {
        const pid_t found = ::waitpid(child, &ended, WNOHANG);
        if (found == child) break;
        if (found < 0 && errno != EINTR)
            return {-errno, "the updater: " + error_text(-errno) +
                                "; let nothing else wait for this program's children"};
        if (was_interrupted())
            return kill_it(child, {-ECANCELED, "interrupted; nothing was written"});
        if (std::chrono::steady_clock::now() > deadline)
            return kill_it(child, {-ETIMEDOUT, "the updater took more than ten minutes for " +
                                                   apps::shown(request.file) +
                                                   "; use a smaller graph, or change less"});
        std::this_thread::sleep_for(between_looks);
    }
    if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return {};
    if (WIFEXITED(ended))
        return {-EIO, "the updater failed, and said why above; see that the graph can be written"};
    return {-EIO,
            "the updater was ended by signal " + std::to_string(WTERMSIG(ended)) + "; run again"};
}

}  // namespace penstock::sssp
