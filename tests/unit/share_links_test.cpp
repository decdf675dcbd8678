// What a link promises to a neighbour that is slow, that others pretend to be, or that is refused
// beside another; and what it says at its end.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include "unit/share_pretender.hpp"

namespace penstock::test {

namespace {

using namespace host;

class share_links : public hostile_share {
protected:
    // No wait of a link ends while the test runs.
    options patient() {
        options o = quick();
        o.host_wait_ms = 600'000;
        return o;
    }
    // A runtime that is linked with the pretender.
    std::unique_ptr<runtime> linked_with(pretender& other, const options& o) {
        auto rt = make_runtime(o);
        other.connect(sockets());
        other.greet();
        EXPECT_TRUE(soon([&] { return linked(*rt) == 1; })) << log();
        return rt;
    }
    static bool is_link(int fd) {
        int domain = 0, type = 0;
        socklen_t size = sizeof domain;
        if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return false;
        size = sizeof type;
        if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) return false;
        int listens = 0;
        size = sizeof listens;
        ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
        return domain == AF_UNIX && type == SOCK_SEQPACKET && listens == 0;
    }
    static constexpr file_life life{3, 1, 64, false, {1, 2, 3, 4, 5}};
    static constexpr int most_handles = 1024;

    // The runtime's end of the only link, which takes no more messages from now on: they are full
    // of `seen` that says nothing.
    static int fill_link(const pretender& other) {
        int end = -1;
        for (int fd = 0; fd < most_handles; ++fd)
            if (fd != other.socket.get() && is_link(fd)) end = fd;
        const int least = 1;
        EXPECT_EQ(::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
        const link_message nothing{link_verb::seen, 0};
        int code = 0, count = 0;
        while (code == 0 && ++count < 10'000) code = send_message(end, &nothing, sizeof nothing);
        EXPECT_EQ(code, -EAGAIN);
        return end;
    }
    // Everything that was said to this end was read.
    static bool is_read(int end) {
        return soon([&] {
            int bytes = -1;
            return ::ioctl(end, FIONREAD, &bytes) == 0 && bytes == 0;
        });
    }
    // Behind all that says nothing.
    static link_message next_word(const pretender& other) {
        link_message said{};
        do said = other.hear();
        while (said.verb == link_verb::seen && said.version == 0);
        return said;
    }
};

// A cache with links and without a runtime. Where they wait, they look after ten minutes.
struct lone_cache : pretender {
    lone_cache() {
        view.neighbours = static_cast<engine::neighbour_view*>(
            device->allocate_device(engine::most_neighbours * sizeof(engine::neighbour_view)));
        view.neighbour_entries = static_cast<engine::neighbour_entry*>(device->allocate_device(
            slots * engine::most_neighbours * sizeof(engine::neighbour_entry)));
        view.visits = static_cast<engine::neighbour_visits*>(
            device->allocate_device(sizeof(engine::neighbour_visits)));
    }
    static process_link_settings settings() {
        process_link_settings out;
        out.name = "test";
        out.beat_ns = 10'000'000;
        out.wait_ns = std::uint64_t{4 * 600} * 1'000'000'000;
        out.say = [](const std::string&) {};
        return out;
    }
};

}  // namespace

TEST_F(share_links, an_answer_that_a_full_link_did_not_take_comes_later) {
    pretender other;
    const auto rt = linked_with(other, patient());
    const std::uint64_t version = other.directory.set(life, offered::written);
    const int end = fill_link(other);
    for (int i = 0; i < 3; ++i) {
        other.say(link_verb::changed, version);
        ASSERT_TRUE(is_read(end));
        std::this_thread::sleep_for(std::chrono::milliseconds(30));  // it was tried by now
    }
    const link_message said = next_word(other);
    EXPECT_EQ(said.verb, link_verb::seen);
    EXPECT_EQ(said.version, version);
    EXPECT_EQ(linked(*rt), 1u);
}

// The open for writing waits all the while, and the neighbour stays.
TEST_F(share_links, a_question_that_a_full_link_did_not_take_comes_later) {
    const std::string path = make_file("data", pattern(1, 2 * page));
    pretender other;
    options o = patient();
    o.request_wait_ms = 600'000;
    const auto rt = linked_with(other, o);
    fill_link(other);
    std::atomic<bool> is_open{false};
    std::thread opener([&] {
        const int fd = rt->open(path, open_read_write);
        is_open = true;
        EXPECT_GE(fd, 0) << error_text(fd);
        rt->close(fd);
    });
    // By now the neighbour was asked in vain, unless the machine is very busy.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_FALSE(is_open);
    // All that fills the link; on a busy machine the question may come behind it.
    link_message asked{};
    link_hello room{};
    received_fds none;
    for (std::int64_t size = 1; size > 0 && asked.verb != link_verb::changed;) {
        size = receive_message(other.socket.get(), &room, sizeof room, none);
        if (size == static_cast<std::int64_t>(sizeof asked))
            std::memcpy(&asked, &room, sizeof asked);
    }
    // As another open does; the first asks again after some time only.
    std::thread settler([&] { rt->state().share->settle(); });
    if (asked.verb != link_verb::changed) asked = next_word(other);
    EXPECT_EQ(asked.verb, link_verb::changed);
    other.say(link_verb::seen, asked.version);
    EXPECT_TRUE(soon([&] { return is_open.load(); }));
    EXPECT_EQ(linked(*rt), 1u);
    other.socket.reset();  // an opener that waits still goes on
    opener.join();
    settler.join();
}

// What it finds when it reads the directory for the first time it need not answer for.
TEST_F(share_links, a_newcomer_holds_up_no_open_of_before_it_came) {
    const lone_cache own;
    process_links links(*own.device, own.view, own.settings());
    ASSERT_TRUE(links.start().ok());
    links.written(life);
    links.settle();
    pretender other;
    other.connect(sockets());
    link_hello hello;
    ASSERT_EQ(other.hear(hello), static_cast<std::int64_t>(sizeof hello));
    std::atomic<bool> has_settled{false};
    std::thread opener([&] {
        links.settle();
        has_settled = true;
    });
    EXPECT_TRUE(soon([&] { return has_settled.load(); }));
    links.leave();
    opener.join();
}

TEST_F(share_links, the_end_of_all_links_waits_for_no_answer) {
    const lone_cache own;
    process_links links(*own.device, own.view, own.settings());
    ASSERT_TRUE(links.start().ok());
    pretender other;
    other.connect(sockets());
    other.greet();
    ASSERT_TRUE(soon([&] { return links.linked() == 1; }));
    links.written(life);
    std::atomic<bool> has_settled{false};
    std::thread opener([&] {
        links.settle();
        has_settled = true;
    });
    EXPECT_EQ(next_word(other).verb, link_verb::changed);
    EXPECT_EQ(links.linked(), 1u);
    EXPECT_FALSE(has_settled);
    links.leave();
    EXPECT_TRUE(soon([&] { return has_settled.load(); }));
    EXPECT_EQ(next_word(other).verb, link_verb::bye);
    opener.join();
}

TEST_F(share_links, a_neighbour_that_is_dropped_hears_why_its_socket_ends) {
    pretender other;
    const auto rt = linked_with(other, quick());
    other.say(link_verb{99}, 0);
    EXPECT_EQ(next_word(other).verb, link_verb::bye);
    EXPECT_EQ(next_word(other).verb, link_verb{});
    EXPECT_TRUE(says("sends what is no message of a link; it is no longer linked"));
}

// The ids of runtimes are no secret among those of one user.
TEST_F(share_links, a_process_takes_no_link_by_the_id_of_another) {
    pretender other, taker;
    other.hello.message.comes_again = 1;  // so that a connection of the same process would win
    const auto rt = linked_with(other, quick());
    taker.hello.message.id = other.hello.message.id;
    const std::vector<int> fds = taker.fds();
    const link_hello& hello = taker.hello.message;
    const sockaddr_un address = pretender::address_in(sockets());
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {  // which the runtime drops, so that it hears the end
        const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
        if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
            send_message(socket, &hello, sizeof hello, fds.data(), fds.size()) != 0)
            ::_exit(1);
        char byte[sizeof hello];
        while (::recv(socket, byte, sizeof byte, 0) > 0) {
        }
        ::_exit(0);
    }
    int ended = 0;
    bool has_ended = false;
    link_hello said{};
    received_fds none;
    EXPECT_TRUE(soon([&] {
        has_ended = ::waitpid(child, &ended, WNOHANG) == child;
        return has_ended || receive_message(other.socket.get(), &said, sizeof said, none) ==
                                static_cast<std::int64_t>(sizeof(link_message));
    })) << "both have a link";
    EXPECT_TRUE(has_ended && WIFEXITED(ended) && WEXITSTATUS(ended) == 0) << "it has a link";
    if (!has_ended && ::kill(child, SIGKILL) == 0) ::waitpid(child, &ended, 0);
    EXPECT_EQ(linked(*rt), 1u);
    other.say(link_verb::changed, other.directory.set(life, offered::to_read));
    EXPECT_EQ(next_word(other).verb, link_verb::seen) << "its link has ended";
}

TEST_F(share_links, a_runtime_is_no_neighbour_of_its_own_id) {
    const auto rt = make_runtime(quick());
    pretender other;
    other.connect(sockets());
    link_hello hello{};
    ASSERT_EQ(other.hear(hello), static_cast<std::int64_t>(sizeof hello));
    other.hello.message.id = hello.id;
    other.greet();
    EXPECT_EQ(next_word(other).verb, link_verb::bye);
    EXPECT_EQ(linked(*rt), 0u);
}

// The place that it did not get is the next one's.
TEST_F(share_links, one_that_is_refused_takes_no_place_from_the_next) {
    const auto rt = make_runtime(quick());
    const owned_fd loose(::memfd_create("loose", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(loose.get(), 1 << 20), 0);
    for (std::uint64_t i = 0; i < 20; ++i) {
        pretender bad, good;
        bad.hello.message.id = 2 * i + 1;
        good.hello.message.id = 2 * i + 2;
        std::vector<int> fds = bad.fds();
        fds[2] = loose.get();
        bad.connect(sockets());
        good.connect(sockets());
        link_hello room;
        ASSERT_GT(bad.hear(room), 0);
        ASSERT_GT(good.hear(room), 0);
        bad.send(&bad.hello.message, sizeof bad.hello.message, fds);
        good.greet();
        ASSERT_TRUE(soon([&] { return linked(*rt) == 1; })) << log();
        EXPECT_EQ(next_word(bad).verb, link_verb::bye);
        // As long as a place takes to be free.
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ASSERT_EQ(good.mappings(), 2) << i;
        good.socket.reset();
        ASSERT_TRUE(soon([&] { return linked(*rt) == 0 && good.mappings() == 1; }));
    }
}

// It would keep the neighbour from hearing that the parent has ended.
TEST_F(share_links, a_child_of_fork_has_no_socket_of_its_parents_links) {
    pretender other;
    const auto rt = linked_with(other, quick());
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        int count = 0;
        for (int fd = 0; fd < most_handles; ++fd)
            if (fd != other.socket.get() && is_link(fd)) ++count;
        ::_exit(count);
    }
    int ended = 0;
    EXPECT_EQ(::waitpid(child, &ended, 0), child);
    EXPECT_TRUE(WIFEXITED(ended));
    EXPECT_EQ(WEXITSTATUS(ended), 0);
}

}  // namespace penstock::test
