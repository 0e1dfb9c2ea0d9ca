"""The names of the Bot API's methods (10.3). Upper and lower case are the same, as at Telegram."""

_NAMES = """
getMe logOut close getUpdates setWebhook deleteWebhook getWebhookInfo getFile
sendMessage sendAnimation sendAudio sendDice sendDocument sendLivePhoto sendPhoto sendSticker sendVideo sendVideoNote
sendVoice sendPaidMedia sendGame sendInvoice sendLocation sendVenue sendContact sendPoll sendChecklist sendMediaGroup
sendRichMessage sendRichMessageDraft sendChatJoinRequestWebApp answerChatJoinRequestQuery
editEphemeralMessageText editEphemeralMessageCaption editEphemeralMessageMedia editEphemeralMessageReplyMarkup
deleteEphemeralMessage
sendChatAction sendMessageDraft sendGift giftPremiumSubscription stopPoll
copyMessage copyMessages forwardMessage forwardMessages setMessageReaction deleteMessageReaction
deleteAllMessageReactions deleteMessage deleteMessages
editMessageText editMessageLiveLocation stopMessageLiveLocation editMessageMedia editMessageCaption
editMessageChecklist editMessageReplyMarkup
answerWebAppQuery answerGuestQuery answerInlineQuery answerCallbackQuery answerShippingQuery answerPreCheckoutQuery
savePreparedInlineMessage savePreparedKeyboardButton
getMyCommands setMyCommands deleteMyCommands getMyDefaultAdministratorRights setMyDefaultAdministratorRights
getMyName setMyName setMyProfilePhoto removeMyProfilePhoto getMyDescription setMyDescription getMyShortDescription
setMyShortDescription getChatMenuButton setChatMenuButton getMyStarBalance
getUserProfilePhotos getUserProfileAudios getUserChatBoosts getUserGifts getUserPersonalChatMessages setUserEmojiStatus
postStory repostStory editStory deleteStory
createInvoiceLink getStarTransactions refundStarPayment editUserStarSubscription getAvailableGifts getChatGifts
convertGiftToStars upgradeGift transferGift
getManagedBotToken getManagedBotAccessSettings setManagedBotAccessSettings replaceManagedBotToken
verifyUser verifyChat removeUserVerification removeChatVerification setGameScore getGameHighScores
exportChatInviteLink createChatInviteLink createChatSubscriptionInviteLink editChatInviteLink
editChatSubscriptionInviteLink revokeChatInviteLink approveChatJoinRequest declineChatJoinRequest
getBusinessConnection readBusinessMessage deleteBusinessMessages setBusinessAccountName setBusinessAccountUsername
setBusinessAccountBio setBusinessAccountProfilePhoto removeBusinessAccountProfilePhoto setBusinessAccountGiftSettings
getBusinessAccountStarBalance transferBusinessAccountStars getBusinessAccountGifts
getChat setChatPhoto deleteChatPhoto setChatTitle setChatPermissions setChatDescription pinChatMessage
unpinChatMessage unpinAllChatMessages approveSuggestedPost declineSuggestedPost setChatStickerSet deleteChatStickerSet
getChatMember getChatAdministrators getChatMemberCount getChatMembersCount leaveChat promoteChatMember
setChatAdministratorCustomTitle setChatMemberTag banChatMember kickChatMember restrictChatMember unbanChatMember
banChatSenderChat unbanChatSenderChat
getForumTopicIconStickers createForumTopic editForumTopic closeForumTopic reopenForumTopic deleteForumTopic
unpinAllForumTopicMessages editGeneralForumTopic closeGeneralForumTopic reopenGeneralForumTopic hideGeneralForumTopic
unhideGeneralForumTopic unpinAllGeneralForumTopicMessages
getStickerSet getCustomEmojiStickers uploadStickerFile createNewStickerSet addStickerToSet replaceStickerInSet
setStickerSetTitle setStickerSetThumb setStickerSetThumbnail setCustomEmojiStickerSetThumbnail deleteStickerSet
setStickerPositionInSet deleteStickerFromSet setStickerEmojiList setStickerKeywords setStickerMaskPosition
setPassportDataErrors
"""

#: Lower case -> the documentation's spelling.
METHODS = {name.lower(): name for name in _NAMES.split()}

#: Sends that do not answer with the message they sent.
_NO_MESSAGE = frozenset(
    {"sendChatAction", "sendMessageDraft", "sendRichMessageDraft", "sendChatJoinRequestWebApp", "sendGift"}
    | {"sendMediaGroup"}
)


def gives_message(method: str) -> bool:
    """True if the method puts one message into a chat and answers with it."""
    return method == "forwardMessage" or (method.startswith("send") and method not in _NO_MESSAGE)


def edits_message(method: str) -> bool:
    return method.startswith(("editMessage", "stopMessage"))


def needs_chat(method: str) -> bool:
    """True if Telegram refuses the method without a chat_id."""
    return gives_message(method) or method in _NEEDS_CHAT


_NEEDS_CHAT = frozenset(
    {"sendMediaGroup", "sendChatAction", "copyMessage", "copyMessages", "forwardMessages", "deleteMessage"}
    | {"deleteMessages", "setMessageReaction", "pinChatMessage", "getChat", "getChatMember", "leaveChat"}
)
