"""The browser side of a Socket.IO conversation, for servers with an event `echo` that send `welcome` first."""

#: Socket.IO by hand (protocol version 5 over Engine.IO version 4), so that the page does not need libraries. `polls` begins with
#: a poll, as Socket.IO's own client does, and upgrades to a WebSocket.
BY_HAND = """
const [polls, done] = [arguments[0], arguments[1]];
(async () => {
    const found = {heard: []};
    let query = "EIO=4&transport=websocket";
    if (polls) {
        const opened = await (await fetch("/socket.io/?EIO=4&transport=polling")).text();
        query += "&sid=" + JSON.parse(opened.slice(1)).sid;
    }
    const socket = new WebSocket(`wss://${location.host}/socket.io/?${query}`);
    socket.onerror = () => done(JSON.stringify({...found, error: "the WebSocket does not open"}));
    socket.onopen = () => polls && socket.send("2probe");
    socket.onmessage = ({data}) => {
        if (data === "3probe") { socket.send("5"); socket.send("40"); }
        else if (data[0] === "0") socket.send("40");
        else if (data === "2") socket.send("3");
        else if (data.startsWith("42")) { found.heard.push(JSON.parse(data.slice(2))[0]); socket.send('421["echo","hi"]'); }
        else if (data.startsWith("431")) {
            found.answer = JSON.parse(data.slice(3))[0].data;
            found.protocols = [...new Set(performance.getEntriesByType("navigation").map((entry) => entry.nextHopProtocol))];
            done(JSON.stringify(found));
        }
    };
})().catch((error) => done(JSON.stringify({error: String(error)})));
"""
