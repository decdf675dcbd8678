#include "os/statistics_page.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>

#include "os/file_system.hpp"
#include "penstock/base/atomic.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::host {

namespace {

constexpr const char* page_name = "penstock-statistics";
constexpr std::string_view link_target = "/memfd:penstock-statistics (deleted)";

std::uint64_t load_word(const std::uint64_t& word) { return atomic_load<order::relaxed>(&word); }
void store_word(std::uint64_t& word, std::uint64_t value) {
    atomic_store<order::relaxed>(&word, value);
}

}  // namespace

statistics_page_layout& statistics_page::page() const {
    return *reinterpret_cast<statistics_page_layout*>(memory_.data());
}

// A child of fork() has no mapping there (MADV_DONTFORK), and something else may lie in its place.
statistics_page::~statistics_page() {
    if (!owner_.here()) static_cast<void>(new shared_memory(std::move(memory_)));
}

int statistics_page::make(const std::string& names, std::uint64_t word_count) {
    if (word_count > most_statistics_words ||
        names.size() > statistics_page_bytes - statistics_names_at)
        return -E2BIG;
    if (const int code = memory_.make(statistics_page_bytes, page_name, true); code != 0)
        return code;
    if (::madvise(memory_.data(), memory_.bytes(), MADV_DONTFORK) != 0) return -errno;
    statistics_page_layout& p = page();
    p.layout = statistics_layout;
    p.pid = static_cast<std::uint64_t>(::getpid());
    p.start_ticks = start_ticks_of(0);
    p.word_count = word_count;
    p.names_bytes = names.size();
    std::memcpy(memory_.data() + statistics_names_at, names.data(), names.size());
    // Pairs with the acquire in open(): a reader that finds the magic also finds what stands
    // beside it.
    atomic_store<order::release>(&p.magic, statistics_magic);
    return 0;
}

// Acquire, which pairs with the release of ask(): what the owner counts after it is newer than the
// question. Otherwise the counts could be loaded before the number, and be older.
std::uint64_t statistics_page::asked() const { return atomic_load<order::acquire>(&page().asked); }

// The odd number comes before what changes (a fence, which pairs with that of read()), and what
// changes before the even number (a release, which pairs with the acquire of read()).
void statistics_page::publish(std::span<const std::uint64_t> words, std::uint64_t answers) {
    if (!owner_.here()) return;
    statistics_page_layout& p = page();
    const std::uint64_t number = load_word(p.number);
    store_word(p.number, number + 1);
    atomic_fence();
    const std::size_t count = std::min<std::size_t>(words.size(), most_statistics_words);
    for (std::size_t i = 0; i < count; ++i) store_word(p.words[i], words[i]);
    store_word(p.answered, answers);
    store_word(p.taken_ns, penstock::detail::host_now_ns());
    atomic_store<order::release>(&p.number, number + 2);
}

statistics_reader::~statistics_reader() {
    if (begin_ != nullptr) unmap_memory_of(begin_, statistics_page_bytes);
}

const statistics_page_layout& statistics_reader::page() const {
    return *reinterpret_cast<const statistics_page_layout*>(begin_);
}

int statistics_reader::open(int fd) {
    int code = 0;
    const std::byte* const begin = map_memory_of(fd, statistics_page_bytes, code, true);
    if (begin == nullptr) return code;
    begin_ = const_cast<std::byte*>(begin);
    const statistics_page_layout& p = page();
    if (atomic_load<order::acquire>(&p.magic) != statistics_magic ||
        load_word(p.layout) != statistics_layout)
        return -EPROTO;
    words_ = std::min(load_word(p.word_count), most_statistics_words);
    return 0;
}

std::uint64_t statistics_reader::pid() const { return load_word(page().pid); }
std::uint64_t statistics_reader::start_ticks() const { return load_word(page().start_ticks); }

std::string statistics_reader::names() const {
    const auto* const text = reinterpret_cast<const char*>(begin_) + statistics_names_at;
    return {text,
            std::min(load_word(page().names_bytes), statistics_page_bytes - statistics_names_at)};
}

std::uint64_t statistics_reader::ask() {
    auto& p = *reinterpret_cast<statistics_page_layout*>(begin_);
    return atomic_fetch_add<order::release>(&p.asked, std::uint64_t{1}) + 1;
}

int statistics_reader::read(statistics_snapshot& out) const {
    constexpr int tries = 64;
    const statistics_page_layout& p = page();
    out.words.resize(words_);
    for (int i = 0; i < tries; ++i) {
        const std::uint64_t number = atomic_load<order::acquire>(&p.number);
        if ((number & 1) == 0) {
            for (std::uint64_t k = 0; k < words_; ++k) out.words[k] = load_word(p.words[k]);
            out.answered = load_word(p.answered);
            out.taken_ns = load_word(p.taken_ns);
            atomic_fence();
            if (load_word(p.number) == number) return 0;
        }
        penstock::detail::host_nap();
    }
    return -EAGAIN;
}

namespace {

std::string text_of_file(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream out;
    out << file.rdbuf();
    return out.str();
}

int pid_of(std::string_view text) {
    int out = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
    return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() ? out : -1;
}

// The number of a process in the innermost namespace that it is in, which is what it has for its
// own.
std::uint64_t own_number_of(int pid) {
    std::istringstream lines(text_of_file("/proc/" + std::to_string(pid) + "/status"));
    for (std::string line; std::getline(lines, line);) {
        if (line.rfind("NSpid:", 0) != 0) continue;
        std::istringstream numbers(line.substr(6));
        std::uint64_t number = 0, last = 0;
        while (numbers >> number) last = number;
        return last;
    }
    return static_cast<std::uint64_t>(pid);
}

std::string program_of(int pid) {
    std::string name = text_of_file("/proc/" + std::to_string(pid) + "/comm");
    while (!name.empty() && name.back() == '\n') name.pop_back();
    for (char& c : name)
        if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
    return name;
}

// Calls use(name) for each entry of a directory.
void for_each_in(int directory, const std::function<void(const char*)>& use) {
    const int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* const list = copy < 0 ? nullptr : ::fdopendir(copy);
    if (list == nullptr) {
        if (copy >= 0) ::close(copy);
        return;
    }
    while (const dirent* const entry = ::readdir(list))
        if (entry->d_name[0] != '.') use(entry->d_name);
    ::closedir(list);
}

// A look that fails for want of descriptors would pass for a process that publishes nothing. At
// most a process's list of them is open, by two descriptors, with a page and a file of facts.
int look_for_descriptors() {
    std::array<owned_fd, 4> room;
    for (owned_fd& fd : room) {
        fd.reset(::open("/", O_PATH | O_CLOEXEC));
        if (!fd) return -errno;
    }
    return 0;
}

// What a descriptor of another process leads to, if that is memory: any file may have such a name
// in a container, and the open of a pipe or device does something.
owned_fd open_memory(int directory, const char* name) {
    const owned_fd place(::openat(directory, name, O_PATH | O_CLOEXEC));
    if (!place || !is_plain_memory(place.get())) return {};
    const std::string same = path_of_descriptor(place.get());
    return owned_fd(::open(same.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
}

void look_in(int pid, std::vector<found_statistics>& out) {
    const std::string path = "/proc/" + std::to_string(pid);
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0 || facts.st_uid != ::geteuid()) return;
    const owned_fd directory(::open((path + "/fd").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory) return;
    for_each_in(directory.get(), [&](const char* name) {
        char target[64];
        const ssize_t length = ::readlinkat(directory.get(), name, target, sizeof target);
        if (length < 0 || std::string_view(target, static_cast<std::size_t>(length)) != link_target)
            return;
        const owned_fd fd = open_memory(directory.get(), name);
        found_statistics found{pid, program_of(pid), {}};
        // A child of fork() has the descriptor of its parent too; the page is the parent's alone.
        if (fd && found.page.open(fd.get()) == 0 && found.page.pid() == own_number_of(pid) &&
            found.page.start_ticks() == start_ticks_of(pid))
            out.push_back(std::move(found));
    });
}

}  // namespace

std::uint64_t start_ticks_of(int pid) {
    const std::string text =
        text_of_file("/proc/" + (pid == 0 ? std::string("self") : std::to_string(pid)) + "/stat");
    // The name of the program may have blanks and brackets; the 22nd field is the 20th after it.
    const std::size_t end = text.rfind(')');
    if (end == std::string::npos) return 0;
    std::istringstream fields(text.substr(end + 1));
    std::string field;
    for (int i = 3; i < 22; ++i) fields >> field;
    std::uint64_t out = 0;
    fields >> out;
    return out;
}

int find_statistics(std::vector<found_statistics>& out, const std::vector<int>& pids) {
    out.clear();
    if (const int code = look_for_descriptors(); code != 0) return code;
    std::vector<int> all = pids;
    if (all.empty()) {
        const owned_fd proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (proc)
            for_each_in(proc.get(), [&](const char* name) {
                if (const int pid = pid_of(name); pid > 0) all.push_back(pid);
            });
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    for (const int pid : all) look_in(pid, out);
    return 0;
}

}  // namespace penstock::host
