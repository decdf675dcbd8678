#include "runtime/statistics_publisher.hpp"

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <exception>

#include "settings/tables.hpp"

namespace penstock::host {

namespace {

struct fact {
    const char* name;
    std::uint64_t published_statistics::*member;
};
constexpr fact published_facts[] = {{"page_bytes", &published_statistics::page_bytes},
                                    {"cache_pages", &published_statistics::cache_pages},
                                    {"cache_number", &published_statistics::cache_number},
                                    {"device_index", &published_statistics::device_index},
                                    {"device_number", &published_statistics::device_number},
                                    {"is_gpu", &published_statistics::is_gpu}};

// Calls use(name, first word, words) for everything that is published, in the order of the page.
template <typename Published, typename Use>
void for_each_published(Published& of, const Use& use) {
    for (const fact& each : published_facts) use(each.name, &(of.*each.member), std::size_t{1});
    for (const settings::statistic_entry& entry : settings::statistic_entries())
        use(entry.name, &(of.counted.*entry.member), std::size_t{1});
    use("batch_size", of.counted.batch_size.data(), of.counted.batch_size.size());
    use("latency_ns", of.counted.latency_ns.data(), of.counted.latency_ns.size());
}

}  // namespace

std::string published_names() {
    std::string out;
    const published_statistics none{};
    for_each_published(none, [&](const char* name, const std::uint64_t*, std::size_t words) {
        out += name + (words == 1 ? std::string() : "[" + std::to_string(words) + "]") + "\n";
    });
    return out;
}

std::vector<std::uint64_t> published_words(const published_statistics& of) {
    std::vector<std::uint64_t> out;
    for_each_published(of, [&](const char*, const std::uint64_t* first, std::size_t words) {
        out.insert(out.end(), first, first + words);
    });
    return out;
}

published_statistics published_from(const std::string& names,
                                    std::span<const std::uint64_t> words) {
    published_statistics out;
    std::size_t at = 0;
    for (std::size_t begin = 0; begin < names.size();) {
        const std::size_t end = std::min(names.find('\n', begin), names.size());
        std::string name = names.substr(begin, end - begin);
        begin = end + 1;
        std::size_t count = 1;
        if (const std::size_t bracket = name.find('['); bracket != std::string::npos) {
            const char* const digits = name.data() + bracket + 1;
            if (std::from_chars(digits, name.data() + name.size(), count).ec != std::errc()) break;
            name.resize(bracket);
        }
        if (count > words.size() - at) break;
        for_each_published(out, [&](const char* known, std::uint64_t* first, std::size_t room) {
            if (name == known) std::copy_n(words.data() + at, std::min(count, room), first);
        });
        at += count;
    }
    return out;
}

statistics_publisher::~statistics_publisher() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
}

int statistics_publisher::start(counting take) {
    static std::atomic<std::uint64_t> caches{0};
    cache_number_ = caches.fetch_add(1, std::memory_order_relaxed);  // a number, and no more
    take_ = std::move(take);
    const std::size_t words = published_words({}).size();
    if (const int code = page_.make(published_names(), words); code != 0) return code;
    count_and_publish(0);
    return 0;
}

void statistics_publisher::count_and_publish(std::uint64_t answers) {
    published_statistics now;
    if (!take_(now)) return;
    now.cache_number = cache_number_;
    page_.publish(published_words(now), answers);
}

void statistics_publisher::look() {
    const std::uint64_t asked = page_.asked();
    if (asked == seen_) return;
    {
        const std::lock_guard lock(mutex_);
        wanted_ = true;
    }
    // Without a thread there is no answer, and the next beat tries again.
    try {
        if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    } catch (const std::exception&) {
        return;
    }
    seen_ = asked;
    wake_.notify_one();
}

void statistics_publisher::run() {
    pthread_setname_np(pthread_self(), "penstock-stat");
    std::unique_lock lock(mutex_);
    for (;;) {
        wake_.wait(lock, [this] { return wanted_ || stop_; });
        if (stop_) return;
        wanted_ = false;
        lock.unlock();
        // The number before the count: what a reader waits for was counted after it asked. Without
        // memory for the count the reader gets no answer.
        try {
            count_and_publish(page_.asked());
        } catch (const std::exception&) {
        }
        lock.lock();
    }
}

}  // namespace penstock::host
